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
DISKS = ("pd-ssd", "pd-standard")


@st.composite
def training_inputs(draw: st.DrawFn) -> dict[str, Any]:
    values: dict[str, Any] = {"scaleTier": "CUSTOM"}
    for role, prefix in PREFIXES.items():
        kind = values[f"{prefix}Type"] = draw(st.sampled_from([*LEGACY_MACHINES, *USUAL]))
        if role != "chief":
            values[f"{prefix}Count"] = draw(st.integers(0, 1 if role == "evaluator" else 3))
        config: dict[str, Any] = {}
        machine = offered().get(kind)
        if machine and machine.gpus and (machine.carries_gpus or draw(st.booleans())):
            gpu = draw(st.sampled_from(sorted(machine.gpus)))
            config["acceleratorConfig"] = {"type": gpu, "count": draw(st.sampled_from(machine.gpus[gpu]))}
        if not draw(st.integers(0, 3)):
            config["diskConfig"] = {"bootDiskType": draw(st.sampled_from(DISKS))}
        if config:
            values[f"{prefix}Config"] = config
    if draw(st.booleans()):
        values["scheduling"] = {"maxRunningTime": draw(st.sampled_from(["60s", "999999999s"]))}
    return values


def asked(values: dict[str, Any]) -> dict[str, Any]:
    """What the file says in our words, nothing replaced."""
    pools = {}
    for role, prefix in PREFIXES.items():
        count = 1 if role == "chief" else values[f"{prefix}Count"]
        kind, gpu = values[f"{prefix}Type"], values.get(f"{prefix}Config", {}).get("acceleratorConfig", {})
        legacy = LEGACY_MACHINES.get(kind, (kind, gpu.get("type"), gpu.get("count", 0)))
        if count:
            pools[role] = (count, *legacy)
    return pools


@settings(max_examples=60, database=None)
@given(training_inputs(), st.sampled_from([[], ["--sync"]]))
def test_every_job_of_ai_platform_becomes_a_cluster_and_strict_refuses_exactly_what_is_changed(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any], flags: list[str]
):
    path: Path = tmp_path_factory.getbasetemp() / "config.yaml"
    path.write_text(json.dumps({"trainingInput": values}))
    source = resolve(read(path), flags)
    cluster = Cluster.of(source)
    is_now = {
        role: (pool.replicas, pool.machine, pool.accelerator and pool.accelerator.type, pool.gpus)
        for role, pool in cluster.pools.items()
    }
    disks = {
        values.get(f"{PREFIXES[role]}Config", {}).get("diskConfig", {}).get("bootDiskType", "")
        for role in asked(values)
    }
    changed = is_now != asked(values) or "999999999s" in str(values)
    try:
        refuse_changes("x", source.notes)
    except UserError:
        assert changed or len(disks) > 1 or cluster.disk is None or cluster.disk.type not in disks
    else:
        assert not changed
