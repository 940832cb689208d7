"""Free ports of this machine, for servers that bind them some seconds later.

with reserved(2) as (one, other): ...
"""

import contextlib
import fcntl
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

from common.errors import UserError

# Ports below the range from which Linux takes ports of outgoing connections. A server binds its
# port seconds after it was chosen, and until then any program's connection could take a port of
# that range.
PORTS = range(10_001, 32_768)
# All launchers of a user must use the same locks, but TMPDIR differs between programs, such as the
# steps of a pipeline.
_LOCKS = Path("/tmp")


@contextlib.contextmanager
def reserved(count: int) -> Iterator[tuple[int, ...]]:
    """Reserves free ports of this machine until the block ends.

    Other launchers of this user do not take these ports meanwhile: each port has a lock file in
    `/tmp/training-ports-<user id>`. Programs that do not use these locks can still take them.

    Args:
      count: Number of ports.

    Yields:
      The ports, all from 10,001 to 32,767; fewer than `count` if not so many are free.

    Raises:
      UserError: If the lock files cannot be written.
    """
    directory = _LOCKS / f"training-ports-{os.getuid()}"
    ports: list[int] = []
    with contextlib.ExitStack() as locks:
        # Each user tries the ports in another order, so that users, who do not share locks, rarely
        # choose the same port.
        for port in random.Random(os.getuid()).sample(PORTS, len(PORTS)):
            if len(ports) == count:
                break
            try:
                directory.mkdir(mode=0o700, exist_ok=True)
                lock = locks.enter_context(open(directory / str(port), "ab"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            except OSError as error:
                raise UserError(
                    f"cannot lock ports in {directory}: {error.strerror}; remove it"
                ) from None
            with contextlib.suppress(OSError), socket.socket() as probe:
                probe.bind(("", port))
                ports.append(port)
        yield tuple(ports)
