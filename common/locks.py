"""Locks of the kernel's, which end with their process, however that ends."""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def locked(
    path: str | os.PathLike[str],
    waiting: Callable[[], object] = lambda: None,
    *,
    every_s: float = 0.05,
) -> Iterator[int]:
    """Holds a lock on a directory, or on a file, which is made where there is none; yields its descriptor.

    While others hold it, `waiting` is called every so often, and may raise.
    """
    descriptor = os.open(
        path, os.O_RDONLY if os.path.isdir(path) else os.O_RDWR | os.O_CREAT, 0o666
    )
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waiting()
                time.sleep(every_s)
        yield descriptor
    finally:
        os.close(descriptor)
