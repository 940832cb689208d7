"""One launcher at a time for a job directory.

    with locked("jobs/a") as descriptor: ...  # a second one is refused
    holder("jobs/a")  # Launcher(pid=4711, ...), or None when there is no launcher
    request_grace_period("jobs/a", 60.0)  # for the signal that is sent to it next
    take_grace_period("jobs/a")  # 60.0, once

The lock is the system's, so it ends with its holders, however they end. The guard holds it too: a launcher that was
killed is over only when its replicas are gone. Who holds it is written in the file, where other machines and containers that
share the directory read it.
"""

import argparse
import contextlib
import fcntl
import os
import pathlib
import time
from collections.abc import Iterator

from common import locks
from common.errors import UserError, writable
from common.flags import positive
from common.storage.storage import is_remote
from components.train.backends.launcher_identity import Fate, Launcher

FILE = "launcher.lock"
_GRACE_PERIOD_FILE = "launcher.grace_period_s"
_MOST_BYTES = 4096


@contextlib.contextmanager
def locked(directory: str) -> Iterator[int]:
    """Holds the lock, and yields the descriptor that other processes may hold it by.

    While another launcher lives, that is refused; the guard of one that is gone is waited for: it finishes its work.
    """
    os.makedirs(directory, exist_ok=True)

    def refuse() -> None:
        launcher = holder(directory)
        if launcher and launcher.fate is not Fate.GONE:
            raise refusal(directory, launcher)

    with locks.locked(os.path.join(directory, FILE), refuse) as descriptor:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, Launcher.of(os.getpid()).to_json().encode(), 0)
        yield descriptor


def refusal(job_dir: str, launcher: Launcher) -> UserError:
    """Returns the error of a second launcher, which names the first."""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(launcher.started))
    place = ", there," if launcher.fate is Fate.UNKNOWN else ""
    directory = "LOG_DIR" if is_remote(job_dir) else job_dir
    return UserError(
        f"a launcher already works on {job_dir}: {launcher.name}, since {since}; wait for it, end it{place} "
        f"with python -m components.train --stop {directory}, or use another --job-dir"
    )


def holder(directory: str) -> Launcher | None:
    """The launcher that works here, if one does or what is left of it is still being removed."""
    try:
        descriptor = os.open(os.path.join(directory, FILE), os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        # What is not there yet is of one that has only just taken it; no process has the id 0.
        return Launcher.from_json(os.pread(descriptor, _MOST_BYTES, 0)) or Launcher.of(0)
    finally:
        os.close(descriptor)


def request_grace_period(directory: str, grace_period_s: float) -> None:
    """Has the next stop request of this directory's launcher give its replicas so much time to save."""
    with writable(directory):
        pathlib.Path(directory, _GRACE_PERIOD_FILE).write_text(str(grace_period_s))


def take_grace_period(directory: str) -> float | None:
    """Returns the grace period that was requested since the last call, in seconds; None if none was."""
    path = pathlib.Path(directory, _GRACE_PERIOD_FILE)
    with contextlib.suppress(OSError, argparse.ArgumentTypeError), path.open("rb") as file:
        path.unlink()
        return positive(file.read(_MOST_BYTES).decode(errors="replace"))
    return None
