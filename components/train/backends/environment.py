"""What every back end tells a replica of its job by environment variables.

Synopsis:

    addresses = {role: [f"{role}-{i}:2222" for i in indices] for role, indices in members(cluster).items()}
    env = replica_env(cluster, program, "worker", 1, addresses=addresses, status="/tmp/worker-1.status.json")
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from components.train.backends.plan import STATUS
from components.train.backends.program import Program
from components.train.cluster.cluster_file import Cluster
from trainer.replicas.member import POOL_ROLES


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
    """
    env = {
        **program.env,
        STATUS: status,
        # The evaluator is in no TF_CONFIG but its own, and the chief must know whether to wait for one.
        POOL_ROLES: ",".join(cluster.pools),
        "PYTHONUNBUFFERED": "1",  # Into a pipe, Python would hold lines back, and lose them when it is killed.
    }
    if cluster.replicas > 1:
        env["TF_CONFIG"] = json.dumps({"cluster": addresses, "task": {"type": role, "index": index}})
    return env
