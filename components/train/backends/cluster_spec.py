"""What Vertex AI tells each replica of a job about the others, in its environment."""

import json
from collections.abc import Iterator

from components.train.cluster.cluster_file import Cluster
from trainer.replicas.member import POOL_ROLES

PORT = 2222
# By position, whatever the pool was meant for.
_BY_POSITION = ("chief", "worker", "ps", "evaluator")


def vertex_environments(cluster: Cluster) -> Iterator[tuple[str, dict[str, str]]]:
    """Each replica, such as `worker/1`, with its variables as text.

    `TF_CONFIG` is set only where there are several replicas, names roles by the position of their pools, and never has
    an evaluator among the members; `CLUSTER_SPEC` is always set. Beside them stands the variable of ours by which the
    trainer knows what the pools were meant for. Keys about the job that say nothing of the replicas are left out, and
    its id, a part of the host names, is JOB.
    """
    hosts = {
        f"workerpool{position}": [f"cmle-training-workerpool{position}-JOB-{i}:{PORT}" for i in range(pool.replicas)]
        for position, pool in enumerate(cluster.pools.values())
    }
    members = {role: names for role, names in zip(_BY_POSITION, hosts.values(), strict=False) if role != "evaluator"}
    for position, (role, pool) in enumerate(cluster.pools.items()):
        for index in range(pool.replicas):
            spec = {"cluster": hosts, "environment": "cloud", "task": {"type": f"workerpool{position}", "index": index}}
            variables = {"CLUSTER_SPEC": json.dumps(spec), POOL_ROLES: ",".join(cluster.pools)}
            if cluster.replicas > 1:
                task = {"type": _BY_POSITION[position], "index": index}
                variables["TF_CONFIG"] = json.dumps({"cluster": members, "environment": "cloud", "task": task})
            yield f"{role}/{index}", variables


def misnamed(cluster: Cluster) -> str:
    """What to tell of roles that Vertex AI's own TF_CONFIG calls something else; empty if there are none.

    They are those behind pools that are fewer than it expects.
    """
    if not (wrong := [role for role, name in zip(cluster.pools, _BY_POSITION, strict=False) if role != name]):
        return ""
    return (
        f"Vertex AI's TF_CONFIG gives {' and '.join(wrong)} another role, by position; our trainer goes by "
        "CLUSTER_SPEC and TRAINER_POOL_ROLES instead, and so must a program of yours"
    )
