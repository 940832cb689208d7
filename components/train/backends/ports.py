"""Ports for a local cluster that no other launcher of this user takes at the same time.

with reserved(3) as ports:
    ...  # start the cluster; the ports are free again when the block, or the process, ends
"""

import contextlib
import fcntl
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from components.train.backends.probe import FIRST_PORT, is_free, last_port
from trainer.base.errors import UserError

# Not TMPDIR: that differs between the programs of one user, a pipeline's steps for example, and locks must not.
_LOCKS = Path("/tmp")


@contextlib.contextmanager
def reserved(count: int) -> Iterator[tuple[int, ...]]:
    """Yields `count` free ports, locked for other launchers until the block ends.

    They lie below the range from which the system gives ports to outgoing connections: a replica binds its port
    seconds after it was chosen, and until then a connection of any program could take one from that range.
    """
    directory = _LOCKS / f"training-ports-{os.getuid()}"
    last = last_port()
    # Users start apart, as their locks do not see each other.
    start = FIRST_PORT + os.getuid() * 997 % (last - FIRST_PORT + 1)
    with contextlib.ExitStack() as locks:
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            candidates = itertools.chain(range(start, last + 1), range(FIRST_PORT, start))
            ports = tuple(itertools.islice((port for port in candidates if _take(directory, port, locks)), count))
        except OSError as error:
            raise UserError(f"cannot lock ports in {directory}: {error.strerror}; remove it") from None
        if len(ports) < count:
            raise UserError(f"{count} free ports between {FIRST_PORT} and {last} are needed, {len(ports)} were found")
        yield ports


def _take(directory: Path, port: int, locks: contextlib.ExitStack) -> bool:
    """Locks `port` if no other launcher has and nothing listens there."""
    descriptor = os.open(directory / str(port), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with contextlib.ExitStack() as mine, contextlib.suppress(BlockingIOError):
        mine.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_free(port):
            locks.push(mine.pop_all())
            return True
    return False
