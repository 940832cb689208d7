"""What all local back ends have in common: the plan of a job, and the variables by which a replica knows its job.

plan = job_plan(cluster, program, "process", log_dir="jobs/a/replicas", address=lambda role, i: f"{role}-{i}:2222")
"""

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from common.errors import UserError
from common.storage.storage import is_remote
from components.train.backends.heeded import ignored
from components.train.backends.plan import STATUS, Plan, Replica
from components.train.backends.program import Program
from components.train.cluster.cluster_file import Cluster
from trainer.cluster.member import POOL_ROLES


def job_plan(
    cluster: Cluster,
    program: Program,
    backend: str,
    *,
    log_dir: str,
    address: Callable[[str, int], str],
    run: Callable[[Replica], Replica],
    notes: Iterable[str] = (),
    **more: Any,
) -> Plan:
    """Plans a job whose replicas all run the same command and are told apart by `TF_CONFIG`.

    `address` has `host:port` of a replica that trains, from role and index; `run` makes of a replica as a plain process of
    this machine what the back end starts. The keys of the cluster file that the back end ignores are told of after
    `notes`, and `more` are further fields of the plan.
    """
    addresses: dict[str, list[str]] = {}
    if cluster.replicas > 1:
        for role, index in cluster.members:
            if role != "evaluator":  # TensorFlow waits for ever if that is named among those who train together.
                addresses.setdefault(role, []).append(address(role, index))
    replicas = []
    for role, index in cluster.members:
        stem = f"{log_dir}/{role}-{index}"
        status = os.path.abspath(f"{stem}.status.json")
        env = {
            **program.env,
            STATUS: status,
            # The evaluator is in no TF_CONFIG but its own, and the chief must know whether to wait for one.
            POOL_ROLES: ",".join(cluster.pools),
            "PYTHONUNBUFFERED": "1",  # Into a pipe, Python would hold lines back, and lose them when it is killed.
        }
        if addresses:
            env["TF_CONFIG"] = json.dumps({"cluster": addresses, "task": {"type": role, "index": index}})
        plain = Replica(role=role, index=index, command=program.command, env=env, log=f"{stem}.log", status=status)
        replicas.append(run(plain))
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
    """`log_dir`, or `replicas` in a job directory that is not remote; what cannot be written is refused."""
    remote = is_remote(program.job_dir)
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
    """Looks whether a directory can be written, or made where it is not there yet."""
    path = os.path.abspath(directory)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if not (os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)):
        raise UserError(f"{what} {directory}: {path} is not a directory that can be written; choose another place")
