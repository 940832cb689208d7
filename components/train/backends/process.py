"""The process back end: one process per replica on this machine."""

import contextlib
import fcntl
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

from common.errors import UserError
from components.train.backends.backend import Job
from components.train.backends.local import LocalBackend
from components.train.supervision.plan import Plan

# Below those that Linux gives to outgoing connections: a replica binds its port seconds after it
# was chosen, and until then a connection of any program could take one of those.
PORTS = range(10_001, 32_768)
# Not TMPDIR: that differs between the programs of one user, a pipeline's steps for example, and
# locks must not.
_LOCKS = Path("/tmp")


class ProcessBackend(LocalBackend):
    """Runs each replica as a process of this machine, in a session of its own.

    Ignored here: machine and accelerator types, alternatives, the disk and `scheduling.strategy`.
    """

    name = "process"

    @contextlib.contextmanager
    def plan(self, job: Job) -> Iterator[Plan]:
        """Plans processes that reach each other at ports of this machine, which are locked until the block ends."""
        members = job.cluster.members
        with reserved(len(members)) as ports:
            yield self.job_plan(job, [f"127.0.0.1:{port}" for port in ports])


@contextlib.contextmanager
def reserved(count: int) -> Iterator[tuple[int, ...]]:
    """Yields `count` free ports, locked for other launchers of this user until the block ends."""
    directory = _LOCKS / f"training-ports-{os.getuid()}"
    ports: list[int] = []
    with contextlib.ExitStack() as locks:
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
