"""Notices that another process has ended, so that nothing outlives the one that started it. Imports no TensorFlow.

if pid := owner_pid(os.environ):
    watch(pid, lambda: os.kill(os.getpid(), signal.SIGKILL))
"""

import os
import select
import threading
import time
from collections.abc import Callable, Mapping

import psutil

from common.flags import at_least, variable

OWNER_PID = "PIPELINE_OWNER_PID"
_POLL_S = 0.25


def owner_pid(environ: Mapping[str, str]) -> int | None:
    """The process that this one must not outlive, or None."""
    return variable(OWNER_PID, at_least(0), environ) or None


def open_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None if there is no such process, or system (Linux has)."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def watch(pid: int, on_death: Callable[[], object]) -> None:
    """Calls `on_death` once, in a daemon thread, when process `pid` ends or if there is none."""
    # Here and not in the thread: until it is open, the id could be given to another process.
    descriptor = open_pidfd(pid)
    threading.Thread(target=_watch, args=(pid, descriptor, on_death), name=f"lifeline-{pid}", daemon=True).start()


def _watch(pid: int, descriptor: int | None, on_death: Callable[[], object]) -> None:
    if descriptor is not None:
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        ended.poll()
        os.close(descriptor)
    while descriptor is None and psutil.pid_exists(pid):
        time.sleep(_POLL_S)
    on_death()
