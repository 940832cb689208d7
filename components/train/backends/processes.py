"""The process back end: one process per replica on this machine.

Synopsis:

    plan = plan_processes(cluster, program, log_dir="jobs/a/replicas", ports=[10001, 10002], division=division)
    exit_code = supervisor.run(plan)

Ignored here: machine and accelerator types (counts of GPUs are heeded), disk, `scheduling.strategy`.
"""

from __future__ import annotations

from collections.abc import Iterable

from components.train.backends.environment import members, replica_env
from components.train.backends.plan import Plan, Replica
from components.train.backends.program import Program
from components.train.backends.resources import Division
from components.train.cluster.cluster_file import Cluster


def port_count(cluster: Cluster) -> int:
    """How many addresses the job needs: one for each replica but the evaluator, none for a single replica."""
    return sum(map(len, members(cluster).values())) if cluster.replicas > 1 else 0


def plan_processes(
    cluster: Cluster,
    program: Program,
    *,
    log_dir: str,
    ports: Iterable[int],
    division: Division,
    max_restarts: int | None = None,
) -> Plan:
    """Plans one process per replica, all running the same command and told apart by `TF_CONFIG`.

    Args:
      cluster: What to run on.
      program: What to run.
      log_dir: Directory of log and status files.
      ports: `port_count(cluster)` free ports.
      division: Of cores and GPUs.
      max_restarts: In place of the cluster file's.
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
    return Plan(
        strategy=cluster.strategy,
        job_dir=program.job_dir,
        log_dir=log_dir,
        replicas=tuple(replicas),
        max_restarts=cluster.scheduling.max_restarts if max_restarts is None else max_restarts,
        timeout_s=cluster.scheduling.timeout_s,
        reports=program.reports,
        notes=division.notes,
    )
