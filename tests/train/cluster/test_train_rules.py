"""What passes validation keeps to the rules; what AI Platform took becomes something that does."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import read
from components.train.cluster.machines import offered
from components.train.cluster.notes import refuse_changes
from components.train.cluster.scale_tiers import LEGACY_MACHINES
from components.train.cluster.strategies import resolve
from trainer.base.errors import UserError

T4 = "accelerator: {type: NVIDIA_TESLA_T4, count: %d}"
L4 = "{machine: g2-standard-12, accelerator: {type: NVIDIA_L4, count: 1}}"
ONE, MIRRORED, SYNC, PS = (
    f"strategy: {name}" for name in ("one_device", "mirrored", "multi_worker_mirrored", "parameter_server")
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{ONE}, chief: {{replicas: 2}}", "chief.replicas: 2, but a job has 1 chief"),
        (f"{ONE}, chief: {{}}, evaluator: {{replicas: 2}}", "evaluator.replicas: 2, but a job has at most 1"),
        (f"{ONE}, chief: {{}}, worker: {{}}", "worker: one_device has none; remove worker, or write"),
        (f"{MIRRORED}, chief: {{}}, worker: {{}}", "worker: mirrored has none"),
        (f"{MIRRORED}, chief: {{}}, ps: {{}}", "ps: mirrored has none"),
        (f"{SYNC}, chief: {{}}, ps: {{}}", "ps: multi_worker_mirrored has none; remove ps, or write 'strategy:"),
        (f"{PS}, chief: {{}}, worker: {{}}", "ps: missing, but parameter_server needs at least 1; add"),
        (f"{PS}, chief: {{}}, ps: {{}}", "worker: missing, but parameter_server needs at least 1; add"),
        (
            f"{SYNC}, chief: {{{T4 % 1}}}, worker: {{{T4 % 2}}}",
            "worker.accelerator: 2 GPUs, and the chief has 1; replicas that compute every step together need",
        ),
        (f"{SYNC}, chief: {{}}, worker: {{{T4 % 1}}}", "worker.accelerator: 1 GPUs, and the chief has 0"),
        (
            f"{ONE}, chief: {{{T4 % 4}}}",
            "chief.accelerator: 4 GPUs, but one_device computes on 1; write 'strategy: mirrored', or 'count: 1'",
        ),
        (
            f"{PS}, chief: {{{T4 % 1}}}, worker: {{}}, ps: {{}}",
            "chief.accelerator: 1 GPUs, but the chief of a parameter_server job computes nothing; remove them",
        ),
        (f"{PS}, chief: {{}}, worker: {{}}, ps: {{{T4 % 1}}}", "ps.accelerator: 1 GPUs, but the ps of"),
        (f"{PS}, chief: {L4}, worker: {{}}, ps: {{}}", "computes nothing; remove them and write 'machine: "),
        (
            f"{PS}, chief: {{}}, worker: {{machine: n1-standard-32, {T4 % 4}}}, ps: {{}}",
            "worker.accelerator: 4 GPUs, but the worker of a parameter_server job computes on 1; write 'count: 1' with "
            "'machine: n1-standard-16' and more replicas",
        ),
        (
            f"{ONE}, chief: {{machine: n1-standard-8}}, disk: {{type: hyperdisk-balanced}}",
            "disk.type: chief's n1-standard-8 does not boot from hyperdisk-balanced (allowed: pd-ssd, pd-",
        ),
        (
            f"{ONE}, chief: {{}}, scheduling: {{timeout: 31d}}",
            "scheduling.timeout: 31d is more than 30 days; write for example 7d",
        ),
        (f"{ONE}, chief: {{}}, scheduling: {{strategy: FLEX_START}}", "FLEX_START needs GPUs, one of NVIDIA_A100_80GB"),
        (
            f"{ONE}, chief: {{machine: n1-standard-4, {T4 % 1}}}, scheduling: {{strategy: FLEX_START}}",
            "and the chief has NVIDIA_TESLA_T4; write SPOT or STANDARD",
        ),
        (
            f"{ONE}, chief: {L4}, evaluator: {{}}, scheduling: {{strategy: FLEX_START}}",
            "needs the same machine in every pool, and evaluator differs; write SPOT or STANDARD",
        ),
        (
            f"{ONE}, chief: {L4}, scheduling: {{strategy: FLEX_START, timeout: 8d}}",
            "scheduling.timeout: FLEX_START lends machines for at most 7 days; write 7d or less",
        ),
        # And what stands close to these, and may be.
        (f"{ONE}, chief: {{{T4 % 1}}}, evaluator: {{{T4 % 2}}}, scheduling: {{timeout: 30d}}", None),
        (f"{MIRRORED}, chief: {{machine: n1-standard-8, {T4 % 4}}}, disk: {{type: pd-standard}}", None),
        (f"{SYNC}, chief: {{{T4 % 2}}}, worker: {{{T4 % 2}, replicas: 3}}", None),
        (f"{SYNC}, chief: {L4}, worker: {L4}, scheduling: {{strategy: FLEX_START, timeout: 7d}}", None),
        (f"{PS}, chief: {{}}, worker: {{{T4 % 1}}}, ps: {{}}", None),
        (f"{ONE}, chief: {{machine: n4-standard-8}}, disk: {{type: hyperdisk-balanced}}", None),
    ],
)
def test_what_cannot_work_is_refused_with_its_repair(text: str, says: str | None):
    document = json.dumps(yaml.safe_load(f"{{{text}}}"))
    if says is None:
        Cluster.from_json(document)
    else:
        with pytest.raises(UserError, match=re.escape(says)):
            Cluster.from_json(document)


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
