"""One launcher at a time for a job directory.

Synopsis:

    with locked("jobs/a") as descriptor: ...  # a second one is refused
    holder("jobs/a")  # {"pid": 4711, "since": 1790000000.0}, or None when there is no launcher

The lock is the system's, so it ends with its holders, however they end. The guard holds it too: a launcher that was
killed is over only when its replicas are gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import psutil

from trainer.errors import UserError

FILE = "launcher.lock"
_GUARD_S = 15.0
_POLL_S = 0.05


@contextlib.contextmanager
def locked(directory: str) -> Iterator[int]:
    """Holds the lock, and yields the descriptor that other processes may hold it by.

    Raises:
      UserError: If another launcher holds it, or the directory cannot be written.
    """
    try:
        os.makedirs(directory, exist_ok=True)
        descriptor = os.open(os.path.join(directory, FILE), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise UserError(f"cannot write to {directory}: {error.strerror}") from None
    try:
        _take(descriptor, directory)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "since": time.time()}).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def holder(directory: str) -> dict[str, Any] | None:
    """`pid` and `since` (seconds since the epoch) of the launcher that works here, if one does."""
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
    give_up = time.monotonic() + _GUARD_S
    while True:
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = _read(descriptor)
        if _lives(found["pid"]) or time.monotonic() > give_up:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found["since"]))
            raise UserError(
                f"a launcher already works on {directory}: process {found['pid']}, since {since}; wait for it, end it "
                f"with python -m components.train --stop {directory}, or use another --job-dir"
            )
        time.sleep(_POLL_S)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _read(descriptor: int) -> dict[str, Any]:
    try:
        return json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:
        return {"pid": 0, "since": time.time()}  # It has only just taken it.
