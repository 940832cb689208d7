import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import read
from components.train.cluster.machines import offered
from components.train.cluster.notes import refuse_changes
from components.train.cluster.scale_tiers import LEGACY_MACHINES
from components.train.cluster.strategies import resolve
from trainer.base.errors import UserError

PREFIXES = {"chief": "master", "worker": "worker", "ps": "parameterServer", "evaluator": "evaluator"}
USUAL = ("n1-standard-8", "n1-standard-4", "g2-standard-12", "g2-standard-24", "a2-highgpu-2g", "n4-standard-8")
# Every machine with each number of GPUs that it may have: what the file says of them, and what that is in our words.
MACHINES = [({"Type": kind}, legacy) for kind, legacy in LEGACY_MACHINES.items()]
MACHINES += [({"Type": kind}, (kind, None, 0)) for kind in USUAL if not offered()[kind].carries_gpus]
MACHINES += [
    ({"Type": kind, "acceleratorConfig": {"type": gpu, "count": count}}, (kind, gpu, count))
    for kind in USUAL
    for gpu, counts in offered()[kind].gpus.items()
    for count in counts
]
DISKS = st.sampled_from([None, None, None, "pd-ssd", "pd-standard"])
POOLS = {role: st.tuples(st.sampled_from(MACHINES), DISKS, st.integers(0, 3)) for role in PREFIXES}


@settings(max_examples=60, database=None)
@given(st.fixed_dictionaries(POOLS), st.sampled_from([None, "60s", "999999999s"]), st.sampled_from([[], ["--sync"]]))
def test_every_job_of_ai_platform_becomes_a_cluster_and_strict_refuses_exactly_what_is_changed(
    tmp_path_factory: pytest.TempPathFactory, pools: dict[str, Any], limit: str | None, flags: list[str]
):
    values: dict[str, Any] = {"scaleTier": "CUSTOM", "scheduling": {"maxRunningTime": limit} if limit else {}}
    asked, disks = {}, set()
    for (role, prefix), ((says, means), disk, number) in zip(PREFIXES.items(), pools.values(), strict=True):
        config = {"diskConfig": {"bootDiskType": disk}} if disk else {}
        config |= {"acceleratorConfig": says["acceleratorConfig"]} if "acceleratorConfig" in says else {}
        replicas = {"chief": 1, "evaluator": min(number, 1)}.get(role, number)
        values |= {f"{prefix}Type": says["Type"], f"{prefix}Config": config}
        values |= {f"{prefix}Count": replicas} if role != "chief" else {}
        if replicas:
            asked[role] = (replicas, *means)
            disks.add(disk or "")
    path: Path = tmp_path_factory.getbasetemp() / "config.yaml"
    path.write_text(json.dumps({"trainingInput": values}))
    source = resolve(read(path), flags)
    cluster = Cluster.of(source)
    is_now = {
        role: (pool.replicas, pool.machine, pool.accelerator and pool.accelerator.type, pool.gpus)
        for role, pool in cluster.pools.items()
    }
    changed = is_now != asked or limit == "999999999s"
    try:
        refuse_changes("x", source.notes)
    except UserError:
        assert changed or len(disks) > 1 or cluster.disk is None or cluster.disk.type not in disks
    else:
        assert not changed
