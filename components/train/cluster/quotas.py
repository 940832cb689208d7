"""Whether a region offers what a cluster asks for, and whether a new project's quota is enough.

check_region(cluster, "us-central1")  # refuses GPUs that the region does not have
for warning in quota_warnings(cluster, "us-central1"): print(warning)
"""

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Mapping

from components.train.cluster.cluster_file import Cluster
from components.train.cluster.keys import Disk
from components.train.cluster.machines import offered, table
from trainer.base.errors import UserError, unknown

DEFAULT_REGION = "us-central1"


def check_region(cluster: Cluster, region: str) -> None:
    """Refuses a region that does not exist or lacks a GPU of the cluster, and names those that have it."""
    regions = {row["region"] for row in table("quotas")}
    if region not in regions:
        raise UserError(f"region: {unknown('region', region, regions)}")
    having: dict[str, list[str]] = defaultdict(list)
    for row in table("regions"):
        if row["training"] == "yes":
            having[row["accelerator"]].append(row["region"])
    for role, gpu in ((role, pool.accelerator.type) for role, pool in cluster.pools.items() if pool.accelerator):
        if region not in having[gpu]:
            raise UserError(
                f"{role}: {gpu} is not offered for training in {region}; take one of {', '.join(having[gpu])}"
            )


def quota_warnings(cluster: Cluster, region: str) -> list[str]:
    """What a new project would wait for, and what is odd about the machines."""
    found = []
    if cluster.evaluator and cluster.evaluator.gpus > 1:
        found.append("evaluator: all its GPUs would be paid for and one used; write 'count: 1'")
    if cluster.scheduling.strategy != "STANDARD":
        how = f"{cluster.scheduling.strategy} machines count against the project's preemptible quotas"
        return [*found, f"{how}, whose defaults are not known here; look them up before submitting"]
    for (what, name), need in needs(cluster).items():
        limits = _defaults()[what]
        has = limits.get(region, 0)
        if has < need:
            enough = [each for each, limit in limits.items() if limit >= need]
            enough.sort(key=lambda each: (each.partition("-")[0] != region.partition("-")[0], each))
            instead = f"enough by default: {', '.join(enough[:4])}" if enough else "no region has enough by default"
            found.append(
                f"default quota for {name} in {region} is {has} (needed: {need}); "
                f"the job would wait in QUEUED until the project has more ({instead})"
            )
    return found


def needs(cluster: Cluster) -> Mapping[tuple[str, str], int]:
    """What all pools need together of what has a quota: by its name in the table and that for people."""
    needs: Counter[tuple[str, str]] = Counter()
    for pool in cluster.pools.values():
        if not pool.machine:
            continue
        machine = offered()[pool.machine]
        disk = cluster.disk or Disk(type=machine.boot_disks[0])
        needs[machine.family, f"{machine.family.upper()} vCPUs"] += machine.vcpus * pool.replicas
        if gpus := pool.accelerator:
            needs[gpus.type, gpus.type] += gpus.count * pool.replicas
        needs[disk.type, f"GB of {disk.type}"] += disk.size_gb * pool.replicas
    return {key: need for key, need in needs.items() if key[0] in _defaults()}


@functools.cache
def _defaults() -> Mapping[str, Mapping[str, float]]:
    """By what is counted, and region; regions in which it is not available are left out."""
    found: dict[str, dict[str, float]] = {}
    for row in table("quotas"):
        for what in filter(None, row["counts"].split(";")):
            limits = found.setdefault(what, {})
            if row["default"] != "Not available":
                limits[row["region"]] = math.inf if row["default"] == "Unlimited" else int(row["default"])
    return found
