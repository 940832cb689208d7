"""Notices that another process has ended, so that nothing outlives the one that started it. Imports no TensorFlow.

if pid := owner_pid(os.environ):
    watch(pid, lambda: os.kill(os.getpid(), signal.SIGKILL))
"""

import contextlib
import os
import select
import threading
from collections.abc import Callable, Mapping

import psutil

from common.flags import at_least, variable

OWNER_PID = "PIPELINE_OWNER_PID"


def owner_pid(environ: Mapping[str, str]) -> int | None:
    """Returns the id of the process that this one must not outlive, or None."""
    return variable(OWNER_PID, at_least(0), environ) or None


def open_pidfd(pid: int) -> int | None:
    """Returns a descriptor that becomes readable when the process ends; None if there is no such process, or system (Linux has)."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def watch(pid: int, on_death: Callable[[], object]) -> None:
    """Calls `on_death` once, in a daemon thread, when process `pid` ends or if there is none."""

    def wait() -> None:
        if (pidfd := open_pidfd(pid)) is not None:
            ended = select.poll()
            ended.register(pidfd, select.POLLIN)
            ended.poll()  # At once: a moment later what wrote to that process may have failed.
            os.close(pidfd)
        else:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).wait()
        on_death()

    threading.Thread(target=wait, name=f"lifeline-{pid}", daemon=True).start()
