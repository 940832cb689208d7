"""The Vertex plan: a cluster as the `worker_pool_specs` of a `CustomTrainingJobOp`."""

from collections.abc import Sequence
from typing import Any

from common.errors import UserError
from components.train.backends.job_settings import JobSettings
from components.train.backends.program import trainer_flags
from components.train.cluster.cluster_file import Cluster
from trainer.cluster.member import POOL_GPUS, POOL_ROLES

COMMAND = ("python", "-m", "trainer.task")


def plan_vertex(
    cluster: Cluster,
    image: str,
    args: Sequence[str],
    *,
    machines: bool = True,
    command: Sequence[str] = (),
    settings: JobSettings | None = None,
) -> list[dict[str, Any]]:
    """One worker pool spec per pool, in snake case and without a gap.

    Nothing in it is zero or empty, as the pipeline launcher removes such entries: an empty pool would shift those
    behind it into other roles.

    Every pool must name a machine, but for a run on this one (`machines` is false). `command` is a program of the user's own in place of the trainer; it gets `args` as they are.
    """
    settings = settings or JobSettings()
    flags = list(args) if command else trainer_flags(cluster, args)
    roles = ",".join(cluster.pools)
    specs = []
    for role, pool in cluster.pools.items():
        if machines and not pool.machine:
            raise UserError(f"{role}: Vertex needs a machine type; add 'machine: n1-standard-4' to {role}")
        machine: dict[str, Any] = {"machine_type": pool.machine} if pool.machine else {}
        if pool.accelerator:
            machine |= {"accelerator_type": pool.accelerator.type, "accelerator_count": pool.accelerator.count}
        machine |= settings.reserved
        # Vertex numbers its pools; this names them, and tells a replica what its machine is to have.
        env = {**settings.environment, POOL_ROLES: roles}
        env |= {POOL_GPUS: str(pool.accelerator.count)} if pool.accelerator else {}
        container = {
            "image_uri": image,
            "command": list(command or COMMAND),
            **({"args": list(flags)} if flags else {}),
            "env": [{"name": name, "value": value} for name, value in env.items()],
        }
        spec = {"machine_spec": machine} if machine else {}
        spec |= {"replica_count": pool.replicas, "container_spec": container}
        if cluster.disk:
            spec["disk_spec"] = {"boot_disk_type": cluster.disk.type, "boot_disk_size_gb": cluster.disk.size_gb}
        specs.append(spec)
    return specs


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
