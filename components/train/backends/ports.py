"""Ports for a local cluster that no other launcher of this user takes at the same time.

with reserved(3) as ports:
    ...  # start the cluster; the ports are free again when the block, or the process, ends
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from common.errors import UserError
from components.train.backends.probe import FIRST_PORT, is_free, last_port

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
    ports: list[int] = []
    with contextlib.ExitStack() as locks:
        for port in [*range(start, last + 1), *range(FIRST_PORT, start)]:
            if len(ports) == count:
                break
            try:
                directory.mkdir(mode=0o700, exist_ok=True)
                lock = locks.enter_context(open(directory / str(port), "ab"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            except OSError as error:
                raise UserError(f"cannot lock ports in {directory}: {error.strerror}; remove it") from None
            if is_free(port):
                ports.append(port)
        if len(ports) < count:
            raise UserError(f"{count} free ports between {FIRST_PORT} and {last} are needed, {len(ports)} were found")
        yield tuple(ports)
