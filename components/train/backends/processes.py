"""The process back end: one process per replica on this machine.

Synopsis:

    with planned(cluster, trainer_program(cluster, flags)) as plan:
        exit_code = supervisor.run(plan)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from components.train.backends.environment import job_plan, log_place, members, replica_env
from components.train.backends.heeded import ignored_by
from components.train.backends.plan import Plan, Replica
from components.train.backends.ports import reserved
from components.train.backends.program import Program
from components.train.backends.resources import Division, divide, usable_gpus
from components.train.cluster.cluster_file import Cluster
from trainer.base.machine import usable_cores

__doc__ = f"{__doc__}\n{ignored_by('process')}"


@contextlib.contextmanager
def planned(cluster: Cluster, program: Program, *, log_dir: str | None = None) -> Iterator[Plan]:
    """Yields the plan; its ports are locked until the block ends. Nothing is written.

    Args:
      cluster: What to run on.
      program: What to run.
      log_dir: For log and status files; by default `replicas` in the job directory.

    Raises:
      UserError: If the job directory cannot be written, or is remote and there is no `log_dir`.
    """
    log_dir = log_place(program, log_dir)
    division = divide(cluster, cores=usable_cores(), gpus=usable_gpus())
    with reserved(port_count(cluster)) as ports:
        yield plan_processes(cluster, program, log_dir=log_dir, ports=ports, division=division)


def port_count(cluster: Cluster) -> int:
    """How many addresses the job needs: one for each replica but the evaluator, none for a single replica."""
    return sum(map(len, members(cluster).values())) if cluster.replicas > 1 else 0


def plan_processes(
    cluster: Cluster, program: Program, *, log_dir: str, ports: Iterable[int], division: Division
) -> Plan:
    """Plans one process per replica, all running the same command and told apart by `TF_CONFIG`.

    Args:
      cluster: What to run on.
      program: What to run.
      log_dir: Directory of log and status files.
      ports: `port_count(cluster)` free ports.
      division: Of cores and GPUs.
    """
    ports = iter(ports)
    addresses = {
        role: [f"127.0.0.1:{next(ports)}" for _ in indices] if cluster.replicas > 1 else []
        for role, indices in members(cluster).items()
    }
    replicas = []
    for role, pool in cluster.pools.items():
        for index in range(pool.replicas):
            stem = f"{log_dir}/{role}-{index}"
            status = f"{stem}.status.json"
            env = replica_env(cluster, program, role, index, addresses=addresses, status=status)
            replicas.append(
                Replica(
                    role=role,
                    index=index,
                    command=program.command,
                    env={**env, **division.env(role, index)},
                    log=f"{stem}.log",
                    status=status,
                )
            )
    return job_plan(cluster, program, "process", log_dir=log_dir, replicas=replicas, notes=division.notes)
