"""Notices when another process ends, so that a process does not outlive the one that started it.

    follow_owner()

Imports no TensorFlow.
"""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Mapping

from common.flags import at_least, variable

OWNER_PID = "PIPELINE_OWNER_PID"


def owner_pid(environ: Mapping[str, str]) -> int | None:
    """Returns the id of the process that this one must not outlive, or None if there is none.

    Raises:
      UserError: If the environment variable `PIPELINE_OWNER_PID` is no process id.
    """
    return variable(OWNER_PID, at_least(0), environ) or None


def open_pidfd(pid: int) -> int | None:
    """Returns a descriptor that becomes readable when the process ends; None if none can be opened.

    That is so if there is no such process, no descriptor is left, or the system has no such ones;
    Linux has.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def kill_self() -> None:
    """Ends this process by SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)


def watch(pid: int, on_death: Callable[[], object] = kill_self) -> None:
    """Calls `on_death` once, in a daemon thread, when process `pid` ends.

    It is called at once if there is no such process.
    """

    def wait() -> None:
        if (pidfd := open_pidfd(pid)) is not None:
            ended = select.poll()
            ended.register(pidfd, select.POLLIN)
            # This returns without a delay, so that `on_death`
            # runs before what writes to that process fails.
            ended.poll()
            os.close(pidfd)
        else:
            import psutil  # Slow to import, and Linux does without.

            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).wait()
        on_death()

    threading.Thread(target=wait, name=f"lifeline-{pid}", daemon=True).start()


def follow_owner() -> None:
    """Starts a thread that kills this process when the one that it must not outlive ends.

    Does nothing if `PIPELINE_OWNER_PID` names none, that is, is not set or 0.

    Raises:
      UserError: If the environment variable `PIPELINE_OWNER_PID` is no process id.
    """
    if pid := owner_pid(os.environ):
        watch(pid)
