"""The Vertex plan: a cluster as the `worker_pool_specs` of a `CustomTrainingJobOp`."""

from collections.abc import Mapping, Sequence
from typing import Any

from common.errors import UserError
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
    env: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Returns one worker pool spec per pool, in snake case and without a gap.

    Nothing in it is zero or empty, as the pipeline launcher removes such entries: an empty pool
    would shift those behind it into other roles.

    Args:
      cluster: Every pool must name a machine, but for a run on this one.
      image: Container image.
      args: Flags of the trainer, or arguments of `command`.
      machines: Whether Vertex AI runs it, and not this machine.
      command: A program of the user's own in place of the trainer.
      env: Variables for every replica.
    """
    flags = list(args) if command else trainer_flags(cluster, args)
    specs = []
    for role, pool in cluster.pools.items():
        if machines and not pool.machine:
            raise UserError(
                f"{role}: Vertex needs a machine type; add 'machine: n1-standard-4' to {role}"
            )
        machine: dict[str, Any] = {"machine_type": pool.machine} if pool.machine else {}
        # Vertex numbers its pools; this names them, and tells a replica what its machine is to
        # have.
        variables = {**(env or {}), POOL_ROLES: ",".join(cluster.pools)}
        if pool.accelerator:
            machine |= {
                "accelerator_type": pool.accelerator.type,
                "accelerator_count": pool.accelerator.count,
            }
            variables[POOL_GPUS] = str(pool.accelerator.count)
        spec: dict[str, Any] = {"machine_spec": machine} if machine else {}
        spec["replica_count"] = pool.replicas
        spec["container_spec"] = {
            "image_uri": image,
            "command": list(command or COMMAND),
            **({"args": list(flags)} if flags else {}),
            "env": [{"name": name, "value": value} for name, value in variables.items()],
        }
        if cluster.disk:
            spec["disk_spec"] = {
                "boot_disk_type": cluster.disk.type,
                "boot_disk_size_gb": cluster.disk.size_gb,
            }
        specs.append(spec)
    return specs
