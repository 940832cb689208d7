"""A job on this machine: a cluster and a program become a plan of processes, with its ports locked.

Synopsis:

    with planned(cluster, trainer_program(cluster, flags)) as plan:
        exit_code = supervisor.run(plan)
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from components.train.backends.plan import Plan
from components.train.backends.ports import reserved
from components.train.backends.processes import plan_processes, port_count
from components.train.backends.program import Program
from components.train.backends.resources import divide, usable_gpus
from components.train.cluster.cluster_file import Cluster
from trainer.base.errors import UserError
from trainer.base.machine import usable_cores


@contextlib.contextmanager
def planned(
    cluster: Cluster, program: Program, *, log_dir: str | None = None, max_restarts: int | None = None
) -> Iterator[Plan]:
    """Yields the plan; its ports are locked until the block ends. Nothing is written.

    Args:
      cluster: What to run on.
      program: What to run.
      log_dir: For log and status files; by default `replicas` in the job directory.
      max_restarts: In place of the cluster file's.

    Raises:
      UserError: If the job directory cannot be written, or is remote and there is no `log_dir`.
    """
    log_dir = log_place(program, log_dir)
    division = divide(cluster, cores=usable_cores(), gpus=usable_gpus())
    with reserved(port_count(cluster)) as ports:
        yield plan_processes(
            cluster, program, log_dir=log_dir, ports=ports, division=division, max_restarts=max_restarts
        )


def log_place(program: Program, log_dir: str | None) -> str:
    """`log_dir`, or its default; both directories of the job can be written.

    Raises:
      UserError: As `planned` does.
    """
    remote = "://" in program.job_dir
    if not log_dir and remote:
        raise UserError(
            f"replicas write their logs to this machine, and --job-dir is {program.job_dir}; add --log-dir DIR"
        )
    if not remote:
        check_writable(program.job_dir, "--job-dir")
    log_dir = log_dir or os.path.join(program.job_dir, "replicas")
    check_writable(log_dir, "--log-dir")
    return log_dir


def check_writable(directory: str, what: str) -> None:
    """Looks whether a directory can be written, or made where it is not there yet.

    Raises:
      UserError: If not.
    """
    path = os.path.abspath(directory)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if not os.path.isdir(path):
        raise UserError(f"{what} {directory}: {path} is not a directory; remove it or choose another place")
    if not os.access(path, os.W_OK | os.X_OK):
        raise UserError(f"{what} {directory}: {path} cannot be written; change its permissions or choose another place")
