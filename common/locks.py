"""Locks of the operating system, which are released when their process ends, however it ends."""

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
    """Holds an exclusive lock on a directory or a file, and yields its file descriptor.

    Args:
      path: Directory or file. A file that does not exist is created.
      waiting: Called at each attempt while another process holds the lock; raises to give up.
      every_s: Seconds between attempts.

    Raises:
      OSError: If `path` cannot be opened.
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
