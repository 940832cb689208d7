"""The process plan: every process of a local job, before one of them starts.

Synopsis:

    plan = plan_processes(cluster, [sys.executable, "-m", "trainer.task", *flags], job_dir="jobs/a",
                          log_dir="jobs/a/replicas", ports=[10001, 10002], cores=2)
    print(plan.to_json())
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence

from components.train.cluster import Cluster
from trainer.cluster import POOL_ROLES
from trainer.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replica:
    """One process of the job.

    Attributes:
      role: `chief`, `worker`, `ps` or `evaluator`.
      index: Among the replicas of its role, from 0.
      command: Program and arguments.
      env: Variables set on top of the launcher's own environment.
      log: File that takes its standard output and error.
    """

    role: str
    index: int
    command: tuple[str, ...]
    env: Mapping[str, str]
    log: str

    @property
    def name(self) -> str:
        """`worker/1`, as people read it."""
        return f"{self.role}/{self.index}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessPlan:
    """A job as processes of this machine, in the order in which they start."""

    strategy: str
    job_dir: str
    log_dir: str
    replicas: tuple[Replica, ...]

    def to_json(self) -> str:
        """The plan for people and golden files."""
        return json.dumps(dataclasses.asdict(self), indent=2)


def port_count(cluster: Cluster) -> int:
    """How many addresses the job needs: one for each replica but the evaluator, none for a single replica."""
    return sum(map(len, _members(cluster).values())) if cluster.replicas > 1 else 0


def plan_processes(
    cluster: Cluster, command: Sequence[str], *, job_dir: str, log_dir: str, ports: Iterable[int], cores: int
) -> ProcessPlan:
    """Plans one process per replica, all running `command` and told apart by `TF_CONFIG`.

    Args:
      cluster: What to run on.
      command: Program and arguments of every replica.
      job_dir: Where the job keeps its state; recorded, not used.
      log_dir: Directory of log and status files.
      ports: `port_count(cluster)` free ports.
      cores: Processor cores, shared by the replicas that compute.
    """
    ports = iter(ports)
    addresses = {
        role: [f"127.0.0.1:{next(ports)}" for _ in indices] if cluster.replicas > 1 else []
        for role, indices in _members(cluster).items()
    }
    computing = cluster.replicas - (cluster.ps.replicas if cluster.ps else 0)
    replicas = []
    for role, pool in cluster.pools.items():
        for index in range(pool.replicas):
            stem = f"{log_dir}/{role}-{index}"
            env = {
                "TRAINER_STATUS": f"{stem}.status.json",
                "TRAINER_ATTEMPT": "0",
                # The evaluator is in no TF_CONFIG but its own, and the chief must know whether to wait for one.
                POOL_ROLES: ",".join(cluster.pools),
                "TRAINER_THREADS": str(max(1, cores // computing)),
                "PYTHONUNBUFFERED": "1",  # Into a pipe, Python would hold lines back, and lose them when it is killed.
            }
            if cluster.replicas > 1:
                env["TF_CONFIG"] = json.dumps({"cluster": addresses, "task": {"type": role, "index": index}})
            replicas.append(Replica(role=role, index=index, command=tuple(command), env=env, log=f"{stem}.log"))
    return ProcessPlan(strategy=cluster.strategy, job_dir=job_dir, log_dir=log_dir, replicas=tuple(replicas))


def trainer_flags(cluster: Cluster, flags: Sequence[str]) -> list[str]:
    """The trainer's flags with the cluster's strategy among them.

    Raises:
      UserError: If they name another strategy.
    """
    named = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    named.add_argument("--strategy")
    strategy = named.parse_known_args(flags)[0].strategy
    if strategy is None:
        return [*flags, "--strategy", cluster.strategy]
    if strategy != cluster.strategy:
        raise UserError(
            f"--strategy {strategy}: the cluster file says {cluster.strategy}; remove the flag or edit the file"
        )
    return list(flags)


def _members(cluster: Cluster) -> dict[str, range]:
    """Replicas that train together. TensorFlow waits for ever if the evaluator is named among them."""
    return {role: range(pool.replicas) for role, pool in cluster.pools.items() if role != "evaluator"}
