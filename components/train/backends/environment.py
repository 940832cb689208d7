"""What all local back ends have in common: the variables by which a replica knows its job, and the plan of the job.

Synopsis:

    addresses = {role: [f"{role}-{i}:2222" for i in indices] for role, indices in members(cluster).items()}
    env = replica_env(cluster, program, "worker", 1, addresses=addresses, status="/tmp/worker-1.status.json")
    plan = job_plan(cluster, program, "process", log_dir="jobs/a/replicas", replicas=[Replica(...)], notes=[])
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from components.train.backends.heeded import ignored
from components.train.backends.plan import STATUS, Plan, Replica
from components.train.backends.program import Program
from components.train.cluster.cluster_file import Cluster
from trainer.base.errors import UserError
from trainer.replicas.member import POOL_ROLES

_VARIABLE_BYTES = 131_072 - len("TF_CONFIG=") - 1  # Of one string of an environment, with the zero at its end.


def members(cluster: Cluster) -> dict[str, range]:
    """Replicas that train together. TensorFlow waits for ever if the evaluator is named among them."""
    return {role: range(pool.replicas) for role, pool in cluster.pools.items() if role != "evaluator"}


def replica_env(
    cluster: Cluster, program: Program, role: str, index: int, *, addresses: Mapping[str, Sequence[str]], status: str
) -> dict[str, str]:
    """Variables of one replica.

    Args:
      cluster: The pools.
      program: What runs.
      role: Of the replica.
      index: Among those of its role.
      addresses: `host:port` of `members`, by role.
      status: File in which the replica tells how it is.

    Raises:
      UserError: If there are more replicas than a variable can name.
    """
    env = {
        **program.env,
        STATUS: status,
        # The evaluator is in no TF_CONFIG but its own, and the chief must know whether to wait for one.
        POOL_ROLES: ",".join(cluster.pools),
        "PYTHONUNBUFFERED": "1",  # Into a pipe, Python would hold lines back, and lose them when it is killed.
    }
    if cluster.replicas > 1:
        text = env["TF_CONFIG"] = json.dumps({"cluster": addresses, "task": {"type": role, "index": index}})
        if len(text.encode()) > _VARIABLE_BYTES:
            raise UserError(
                f"TF_CONFIG of {cluster.replicas} replicas has {len(text.encode()):,} bytes, and Linux gives a program at most "
                f"{_VARIABLE_BYTES:,} in a variable; use fewer replicas, or shorter addresses"
            )
    return env


def job_plan(
    cluster: Cluster,
    program: Program,
    backend: str,
    *,
    log_dir: str,
    replicas: Iterable[Replica],
    notes: Iterable[str],
    **more: Any,
) -> Plan:
    """The plan of a job whose replicas are planned; `notes` are followed by what the back end ignores."""
    return Plan(
        strategy=cluster.strategy,
        job_dir=program.job_dir,
        log_dir=log_dir,
        replicas=tuple(replicas),
        max_restarts=cluster.scheduling.max_restarts,
        timeout_s=cluster.scheduling.timeout_s,
        reports=program.reports,
        notes=(*notes, *ignored(cluster, backend)),
        **more,
    )


def log_place(program: Program, log_dir: str | None) -> str:
    """`log_dir`, or its default; both directories of the job can be written.

    Raises:
      UserError: If one of them cannot be, or the job directory is remote and there is no `log_dir`.
    """
    remote = "://" in program.job_dir
    if not log_dir and remote:
        raise UserError(
            f"replicas write their logs to this machine, and --job-dir is {program.job_dir}; add --log-dir DIR"
        )
    if not remote:
        _check_writable(program.job_dir, "--job-dir")
    log_dir = log_dir or os.path.join(program.job_dir, "replicas")
    _check_writable(log_dir, "--log-dir")
    return log_dir


def _check_writable(directory: str, what: str) -> None:
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
