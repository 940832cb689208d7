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

# Ports below the range from which Linux takes ports of outgoing connections. A replica binds its
# port seconds after it was chosen, and until then any program's connection could take a port of
# that range.
PORTS = range(10_001, 32_768)
# All launchers of a user must use the same locks, but TMPDIR differs between programs, such as the
# steps of a pipeline.
_LOCKS = Path("/tmp")


class ProcessBackend(LocalBackend):
    """Runs each replica as a process of this machine, in a session of its own.

    Ignored here: machine and accelerator types, alternatives, the disk and `scheduling.strategy`.
    """

    name = "process"

    @contextlib.contextmanager
    def plan(self, job: Job) -> Iterator[Plan]:
        """Plans one process per replica; they reach each other at ports of 127.0.0.1.

        Until the block ends, no other launcher of this user takes these ports.

        Raises:
          UserError: If ports cannot be reserved, if the job directory is in a bucket and there is
            no `--log-dir`, or if this machine has GPUs, but fewer than the cluster file asks for.
        """
        members = job.cluster.members
        with reserved(len(members)) as ports:
            yield self.job_plan(job, [f"127.0.0.1:{port}" for port in ports])


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
