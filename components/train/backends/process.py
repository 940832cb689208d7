"""The process back end: one process per replica on this machine."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from common.errors import UserError
from components.train.backends.backend import Job
from components.train.backends.local import LocalBackend
from components.train.backends.probe import FIRST_PORT, is_free, last_port
from components.train.backends.resources import divide_here
from components.train.supervision.plan import Plan

# Not TMPDIR: that differs between the programs of one user, a pipeline's steps for example, and locks must not.
_LOCKS = Path("/tmp")


class ProcessBackend(LocalBackend):
    """Runs each replica as a process of this machine, in a session of its own.

    Ignored here: machine and accelerator types, alternatives, the disk and `scheduling.strategy`.
    """

    name = "process"

    @contextlib.contextmanager
    def plan(self, job: Job) -> Iterator[Plan]:
        """Plans processes that reach each other at ports of this machine, which are locked until the block ends."""
        log_dir = self.log_dir(job)
        division = divide_here(job.cluster)
        members = job.cluster.members
        with reserved(len(members)) as ports:
            addresses = {member: f"127.0.0.1:{port}" for member, port in zip(members, ports, strict=True)}
            yield self.job_plan(job, addresses, log_dir, division)


@contextlib.contextmanager
def reserved(count: int) -> Iterator[tuple[int, ...]]:
    """Yields `count` free ports, locked for other launchers of this user until the block ends.

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
