"""One launcher at a time for a job directory.

    with locked("jobs/a") as descriptor: ...  # a second one is refused
    holder("jobs/a")  # Launcher(pid=4711, ...), or None when there is no launcher

The lock is the system's, so it ends with its holders, however they end. The guard holds it too: a launcher that was
killed is over only when its replicas are gone. Who holds it is written in the file, where other machines and containers that
share the directory read it.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from components.train.backends.launcher_identity import Fate, Launcher
from components.train.supervision.reaper import LIMIT_S
from trainer.base.errors import UserError

FILE = "launcher.lock"
_POLL_S = 0.05


@contextlib.contextmanager
def locked(directory: str) -> Iterator[int]:
    """Holds the lock, and yields the descriptor that other processes may hold it by.

    Raises:
      UserError: If another launcher holds it.
      OSError: If the directory cannot be written.
    """
    os.makedirs(directory, exist_ok=True)
    descriptor = os.open(os.path.join(directory, FILE), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _take(descriptor, directory)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, Launcher.of(os.getpid()).to_json().encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


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
        return _read(descriptor)
    finally:
        os.close(descriptor)


def _take(descriptor: int, directory: str) -> None:
    """Locks, waiting for the guard of a launcher that is gone to finish its work."""
    give_up = time.monotonic() + LIMIT_S
    while True:
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = _read(descriptor)
        if found.fate is not Fate.GONE or time.monotonic() > give_up:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.since))
            there = ", there," if found.fate is Fate.UNKNOWN else ""
            raise UserError(
                f"a launcher already works on {directory}: {found.name}, since {since}; wait for it, end it{there} "
                f"with python -m components.train --stop {directory}, or use another --job-dir"
            )
        time.sleep(_POLL_S)


def _read(descriptor: int) -> Launcher:
    # What is not there yet is of one that has only just taken it; no process has the id 0.
    return Launcher.from_json(os.pread(descriptor, 4096, 0)) or Launcher.of(0)
