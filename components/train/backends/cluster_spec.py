"""Roles that Vertex AI's own TF_CONFIG gives to the replicas of a job."""

from components.train.cluster.cluster_file import Cluster

# By position, whatever the pool was meant for.
_BY_POSITION = ("chief", "worker", "ps", "evaluator")


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
