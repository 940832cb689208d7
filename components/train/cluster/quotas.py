"""Whether a region offers what a cluster asks for, and whether a new project's quota is enough.

Synopsis:

    check_region(cluster, "us-central1")  # refuses GPUs that the region does not have
    for warning in quota_warnings(cluster, "us-central1"): print(warning)
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator, Mapping

from components.train.cluster.cluster_file import Cluster, Disk
from components.train.cluster.machines import offered, table
from trainer.base.errors import UserError, unknown

DEFAULT_REGION = "us-central1"
# Names in the table. A family that is not here has no quota for its processors.
_CPU_QUOTAS = {
    **{family: f"Number of {family.upper()} CPUs for training" for family in ("n2", "n4", "c2", "m1", "a2")},
    **dict.fromkeys(("n1", "e2"), "Number of N1 and E2 CPUs for training"),
    "a3": "Number of concurrent A3 CPUs for training",
}
_GPU_QUOTAS = {
    "NVIDIA_TESLA_P4": "Number of P4 GPUs for training",
    "NVIDIA_TESLA_T4": "Number of T4 GPUs for training",
    "NVIDIA_TESLA_V100": "Number of V100 GPUs for training",
    "NVIDIA_L4": "Number of L4 GPUs for training",
    "NVIDIA_RTX_PRO_6000": "Number of RTX PRO 6000 GPUs for training",
    "NVIDIA_TESLA_A100": "Number of A100 GPUs for training",
    "NVIDIA_A100_80GB": "Number of concurrent A100 80GB GPUs for training",
    "NVIDIA_H100_80GB": "Number of concurrent H100 GPUs for training",
    "NVIDIA_H100_MEGA_80GB": "Number of concurrent H100 Mega GPUs for training",
    "NVIDIA_H200_141GB": "Number of concurrent H200 GPUs for training",
    "NVIDIA_B200": "Number of concurrent B200 GPUs for training",
}
_DISK_QUOTAS = {
    "pd-ssd": "SSD usage (GB) during training",
    "pd-standard": "HDD usage (GB) during training",
    "hyperdisk-balanced": "Hyperdisk Balanced usage (GB) during training",
}
# They boot from nothing else. Source: Compute Engine's page on machine types and disks.
_HYPERDISK_ONLY = ("n4-", "g4-", "a4-", "a3-ultragpu-")


@functools.cache
def regions() -> tuple[str, ...]:
    """Where Vertex AI trains."""
    return tuple(sorted({row["region"] for row in table("quotas")}))


def check_region(cluster: Cluster, region: str) -> None:
    """Refuses a region that does not exist or lacks a GPU of the cluster.

    Raises:
      UserError: Naming the regions that have it.
    """
    if region not in regions():
        raise UserError(f"region: {unknown('region', region, regions())}")
    for role, pool in cluster.pools.items():
        if pool.accelerator and region not in (having := _regions_with(pool.accelerator.type)):
            raise UserError(
                f"{role}: {pool.accelerator.type} is not offered for training in {region}; take one of {', '.join(having)}"
            )


def quota_warnings(cluster: Cluster, region: str) -> list[str]:
    """What a new project would wait for, and what is odd about the machines."""
    found = list(_odd(cluster))
    if cluster.scheduling.strategy != "STANDARD":
        how = f"{cluster.scheduling.strategy} machines count against the project's preemptible quotas"
        return [*found, f"{how}, whose defaults are not known here; look them up before submitting"]
    for (what, quota), need in _needs(cluster).items():
        has = _defaults()[quota].get(region, 0)
        if has < need:
            enough = [each for each, limit in _defaults()[quota].items() if limit >= need]
            enough.sort(key=lambda each: (each.partition("-")[0] != region.partition("-")[0], each))
            instead = f"enough by default: {', '.join(enough[:4])}" if enough else "no region has enough by default"
            found.append(
                f"default quota for {what} in {region} is {has} (needed: {need}); "
                f"the job would wait in QUEUED until the project has more ({instead})"
            )
    return found


def _odd(cluster: Cluster) -> Iterator[str]:
    if cluster.ps and cluster.ps.accelerator:
        yield "ps: its GPUs would be paid for and not used, as parameter servers only add numbers up"
    disk = cluster.disk or Disk()
    for role, pool in cluster.pools.items():
        if (pool.machine or "").startswith(_HYPERDISK_ONLY) and disk.type != "hyperdisk-balanced":
            yield f"{role}: {pool.machine} may not boot from {disk.type}; add 'disk: {{type: hyperdisk-balanced}}'"


def _needs(cluster: Cluster) -> Mapping[tuple[str, str], int]:
    """What all pools need together, by its name for people and that of its quota."""
    needs: Counter[tuple[str, str]] = Counter()
    disk = cluster.disk or Disk()
    for pool in cluster.pools.values():
        if not pool.machine:
            continue
        machine = offered()[pool.machine]
        if quota := _CPU_QUOTAS.get(machine.family):
            needs[f"{machine.family.upper()} vCPUs", quota] += machine.vcpus * pool.replicas
        if gpus := pool.accelerator:
            needs[gpus.type, _GPU_QUOTAS[gpus.type]] += gpus.count * pool.replicas
        needs[f"GB of {disk.type}", _DISK_QUOTAS[disk.type]] += disk.size_gb * pool.replicas
    return needs


@functools.cache
def _defaults() -> Mapping[str, Mapping[str, float]]:
    """By quota and region; regions in which it is not available are left out."""
    found: dict[str, dict[str, float]] = {}
    for row in table("quotas"):
        limits = found.setdefault(row["quota"], {})
        if row["default"] != "Not available":
            limits[row["region"]] = math.inf if row["default"] == "Unlimited" else int(row["default"])
    return found


@functools.cache
def _regions_with(gpu: str) -> tuple[str, ...]:
    return tuple(row["region"] for row in table("regions") if row["accelerator"] == gpu and row["training"] == "yes")
