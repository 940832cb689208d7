"""Divides this machine's processor cores and GPUs among the replicas of a job.

Synopsis:

    division = divide(cluster, cores=usable_cores(), gpus=usable_gpus())
    env = division.env("worker", 1)
    print("\\n".join(division.notes))
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from components.train.cluster.cluster_file import Cluster
from trainer.base.errors import UserError

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_ASK_S = 20.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Division:
    """Who gets what.

    Attributes:
      threads: Of each replica.
      gpus: Ids of the GPUs of each replica, by role, in the order of its replicas; None where the machine has none.
      notes: The same in words.
    """

    threads: int
    gpus: Mapping[str, tuple[tuple[str, ...], ...]] | None
    notes: tuple[str, ...]

    def env(self, role: str, index: int) -> dict[str, str]:
        """Variables that keep a replica to its part."""
        env = {"TRAINER_THREADS": str(self.threads)}
        if self.gpus is not None:
            env[_VISIBLE] = ",".join(self.gpus[role][index])
        return env


def divide(cluster: Cluster, *, cores: int, gpus: Sequence[str]) -> Division:
    """Gives each replica that computes the same number of cores, and each the GPUs that its pool asks for.

    Parameter servers only add numbers up, so they are given no cores of their own. If no pool asks for GPUs, those that
    there are go evenly to the replicas that compute.

    Args:
      cluster: The pools.
      cores: To divide; cores are shared when there are fewer than replicas.
      gpus: Ids as CUDA_VISIBLE_DEVICES has them.

    Raises:
      UserError: If the pools ask for more GPUs than there are, and there are some.
    """
    computing = cluster.replicas - (cluster.ps.replicas if cluster.ps else 0)
    threads = max(1, cores // computing)
    notes = [f"cores: {cores}, replicas that compute: {computing}, threads of each: {threads}"]
    asked = {role: pool.accelerator.count if pool.accelerator else 0 for role, pool in cluster.pools.items()}
    total = sum(count * cluster.pools[role].replicas for role, count in asked.items())
    if not gpus:
        if total:
            notes.append(f"the cluster file asks for {total} GPUs and this machine has none: cores compute instead")
        return Division(threads=threads, gpus=None, notes=tuple(notes))
    if total > len(gpus):
        wants = ", ".join(f"{role} {cluster.pools[role].replicas} x {n}" for role, n in asked.items() if n)
        raise UserError(
            f"the cluster file asks for {total} GPUs ({wants}) and this machine has {len(gpus)}; "
            "lower accelerator.count or replicas"
        )
    if not total:
        asked = {role: 0 if role == "ps" else len(gpus) // computing for role in asked}
        if len(gpus) < computing:
            notes.append(f"{len(gpus)} GPUs for {computing} replicas that compute: unused, as all must be alike")
    ids, shares = iter(gpus), {}
    for role, pool in cluster.pools.items():
        shares[role] = tuple(tuple(next(ids) for _ in range(asked[role])) for _ in range(pool.replicas))
        notes += [f"{role}/{i} has GPU {', '.join(share)}" for i, share in enumerate(shares[role]) if share]
    return Division(threads=threads, gpus=shares, notes=tuple(notes))


def usable_gpus() -> tuple[str, ...]:
    """Ids of the GPUs that this process may use: what CUDA_VISIBLE_DEVICES names, else all that the driver lists."""
    if _VISIBLE in os.environ:
        return tuple(filter(None, (part.strip() for part in os.environ[_VISIBLE].split(",") if part.strip() != "-1")))
    if not (program := shutil.which("nvidia-smi")):
        return ()
    try:
        listing = subprocess.run(
            [program, "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True, timeout=_ASK_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(listing.stdout.split()) if listing.returncode == 0 else ()
