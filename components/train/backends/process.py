"""The process back end: one process per replica on this machine."""

import contextlib
from collections.abc import Iterator

from common.ports import reserved
from components.train.backends.backend import Job
from components.train.backends.local import LocalBackend
from components.train.supervision.plan import Plan


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
