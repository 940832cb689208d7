"""Translates a cluster into the `worker_pool_specs` of a `CustomTrainingJobOp`."""

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
    """Returns one worker pool spec for each pool of the cluster, in the order of its pools.

    No entry is zero or empty, since the pipeline launcher removes such entries, and without an
    empty pool those behind it would get other roles.

    Args:
      cluster: Pools to translate.
      image: Container image of every replica.
      args: Flags of the trainer, which get the cluster's `--strategy`, or arguments of `command`.
      machines: Whether Vertex AI runs the job, so that every pool needs a machine type.
      command: Program and arguments that replace the trainer; empty for the trainer.
      env: Environment variables for every replica.

    Returns:
      Specs with the keys `replica_count`, `container_spec` and, if the cluster has them,
      `machine_spec` and `disk_spec`, named in snake case. Each container gets `TRAINER_POOL_ROLES`
      and, if its pool has GPUs, `TRAINER_POOL_GPUS`.

    Raises:
      UserError: If a pool lacks a machine type that it needs, or if `--strategy` among the
        trainer's flags has no value or another one than the cluster.
    """
    flags = list(args) if command else trainer_flags(cluster, args)
    specs = []
    for role, pool in cluster.pools.items():
        if machines and not pool.machine:
            raise UserError(
                f"{role}: Vertex needs a machine type; add 'machine: n1-standard-4' to {role}"
            )
        machine: dict[str, Any] = {"machine_type": pool.machine} if pool.machine else {}
        # Vertex AI numbers its pools and does not name them, so the roles are passed to each
        # replica, and so is the number of GPUs that its machine must have.
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
