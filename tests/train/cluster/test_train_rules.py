"""What passes validation keeps to the rules, whatever was asked for: random clusters, judged by the tables."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.train.cluster import machines
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.keys import STRATEGIES
from components.train.cluster.lookup import read
from components.train.cluster.notes import refuse_changes
from components.train.cluster.scale_tiers import LEGACY_MACHINES
from components.train.cluster.strategies import resolve
from trainer.base.errors import UserError

with open(Path(machines.__file__).parent / "tables" / "machines.csv", newline="") as file:
    ROWS = list(csv.DictReader(file))
DISKS = ("pd-ssd", "pd-standard", "hyperdisk-balanced")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
# Some of each kind; any row of the table now and then.
USUAL = (
    "n1-standard-8",
    "n1-standard-4",
    "g2-standard-12",
    "g2-standard-24",
    "a2-highgpu-2g",
    "n4-standard-8",
    "m1-ultramem-40",
)
USUAL_ROWS = [row for row in ROWS if row["machine_type"] in USUAL and "P100" not in row["accelerator"]]


@st.composite
def pools(draw: st.DrawFn) -> dict[str, Any]:
    row = draw(st.sampled_from(USUAL_ROWS) | st.sampled_from(ROWS))
    pool: dict[str, Any] = {"machine": row["machine_type"]} if draw(st.integers(0, 5)) else {}
    if row["accelerator"]:
        offered = [int(count) for count in row["allowed_counts"].split(";") if count.isdigit()]
        counts = st.sampled_from(offered) if offered else st.nothing()
        pool["accelerator"] = {"type": row["accelerator"], "count": draw(counts | counts | st.integers(1, 16))}
    if not draw(st.integers(0, 9)):
        pool["replicas"] = draw(st.integers(0, 4))
    return pool


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, Any]:
    usual = draw(pools())
    strategy = draw(st.sampled_from(STRATEGIES))
    fitting = {"multi_worker_mirrored": ["worker"], "parameter_server": ["worker", "ps"]}.get(strategy, [])
    roles = [
        "chief",
        *(fitting if draw(st.integers(0, 5)) else ["worker", "ps"]),
        *draw(st.sampled_from([[], ["evaluator"]])),
    ]
    values = {
        "strategy": strategy,
        **{role: draw(st.sampled_from([usual, usual, None])) or draw(pools()) for role in roles},
    }
    if draw(st.booleans()):
        values["disk"] = {
            "type": draw(st.sampled_from(DISKS)),
            "size_gb": draw(st.sampled_from([99, 100, 100, 64_000, 64_000, 64_001])),
        }
    timeouts = st.sampled_from(["90s", "7d", "8d", "30d", "31d", "800h", "999999999d"])
    how = st.sampled_from(["STANDARD", "STANDARD", "SPOT", "FLEX_START"])
    values["scheduling"] = draw(st.fixed_dictionaries({}, optional={"strategy": how, "timeout": timeouts}))
    return values


def broken_rules(values: dict[str, Any]) -> set[str]:
    """Those that a cluster in the words of its file does not keep to."""
    strategy, broken = values["strategy"], set()
    found = {role: values[role] for role in ("chief", "worker", "ps", "evaluator") if role in values}
    gpus = {role: pool.get("accelerator", {}).get("count", 0) for role, pool in found.items()}
    if any(found[role]["replicas"] != 1 for role in ("chief", "evaluator") if role in found):
        broken.add("one chief and at most one evaluator")
    if ("ps" in found) != (strategy == "parameter_server") or (
        "worker" in found and strategy in ("one_device", "mirrored")
    ):
        broken.add("pools of the strategy")
    for pool in found.values():
        gpu = pool.get("accelerator", {})
        rows = [row for row in ROWS if not row["not_offered"] and row["machine_type"] == pool.get("machine")]
        if "machine" in pool and not any(
            row["accelerator"] == gpu.get("type", "")
            and (not gpu or str(gpu["count"]) in row["allowed_counts"].split(";"))
            for row in rows
        ):
            broken.add("machine and GPUs as offered")
        if gpu and not any(row["accelerator"] == gpu["type"] and not row["not_offered"] for row in ROWS):
            broken.add("GPU that is offered")
        if rows and "disk" in values and values["disk"]["type"] not in rows[0]["boot_disks"].split(";"):
            broken.add("disk that the machine boots from")
    if strategy == "multi_worker_mirrored" and "worker" in found and gpus["worker"] != gpus["chief"]:
        broken.add("equal GPUs in synchronous pools")
    if strategy == "one_device" and gpus["chief"] > 1:
        broken.add("one device")
    if strategy == "parameter_server" and (gpus["chief"] or gpus.get("ps") or gpus.get("worker", 0) > 1):
        broken.add("GPUs that compute under parameter servers")
    timeout = values["scheduling"].get("timeout", "7d")
    seconds = int(timeout[:-1]) * SECONDS[timeout[-1]]
    if values["scheduling"]["strategy"] == "FLEX_START":
        lent = ("L4", "A100", "H100", "H200", "B200")
        shapes = [(pool.get("machine"), pool.get("accelerator")) for pool in found.values()]
        if any(shape != shapes[0] for shape in shapes) or not any(name in str(shapes[0][1]) for name in lent):
            broken.add("one kind of machine with a GPU that FLEX_START lends")
        if seconds > 7 * 86_400:
            broken.add("FLEX_START's 7 days")
    if seconds > 30 * 86_400:
        broken.add("time limit of a job")
    if "disk" in values and not 100 <= values["disk"]["size_gb"] <= 64_000:
        broken.add("size of the disk")
    return broken


def filled_in(values: dict[str, Any]) -> dict[str, Any]:
    pools = {role: {"replicas": 1, **values[role]} for role in ("chief", "worker", "ps", "evaluator") if role in values}
    return {**values, **pools, "scheduling": {"strategy": "STANDARD", **values["scheduling"]}}


def test_a_cluster_passes_exactly_if_it_keeps_to_every_rule():
    outcomes: Counter[str] = Counter()

    @settings(max_examples=400, database=None)
    @given(clusters())
    def judged(values: dict[str, Any]) -> None:
        broken = broken_rules(filled_in(values))
        if any(pool.get("replicas") == 0 for pool in values.values() if isinstance(pool, dict)):
            broken.add("replicas")
        try:
            cluster = Cluster.from_json(json.dumps(values))
        except UserError as error:
            assert broken and len(str(error).splitlines()) == 1, error
        else:
            assert not broken, values
            assert cluster.to_dict() == {key: each for key, each in filled_in(values).items()} | {
                "scheduling": cluster.to_dict()["scheduling"]
            }
        outcomes.update(broken or {"passed"})

    judged()
    assert outcomes["passed"] > 15 and len(outcomes) >= 10, outcomes


T4 = "accelerator: {type: NVIDIA_TESLA_T4, count: %d}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            f"{{strategy: multi_worker_mirrored, chief: {{{T4 % 1}}}, worker: {{{T4 % 2}}}}}",
            "worker.accelerator: 2 GPUs, and the chief has 1; replicas that compute every step together need",
        ),
        (
            f"{{strategy: multi_worker_mirrored, chief: {{}}, worker: {{{T4 % 1}}}}}",
            "worker.accelerator: 1 GPUs, and the chief has 0",
        ),
        (
            f"{{strategy: one_device, chief: {{{T4 % 4}}}}}",
            "chief.accelerator: 4 GPUs, but one_device computes on 1; write 'strategy: mirrored', or 'count: 1'",
        ),
        (
            f"{{strategy: parameter_server, chief: {{{T4 % 1}}}, worker: {{}}, ps: {{}}}}",
            "chief.accelerator: 1 GPUs, but the chief of a parameter_server job computes nothing; remove them",
        ),
        (
            "{strategy: parameter_server, chief: {machine: g2-standard-4, accelerator: {type: NVIDIA_L4}}, worker: {}, ps: {}}",
            "computes nothing; remove them and write 'machine: ",
        ),
        (
            f"{{strategy: parameter_server, chief: {{}}, worker: {{machine: n1-standard-32, {T4 % 4}}}, ps: {{}}}}",
            "worker.accelerator: 4 GPUs, but the worker of a parameter_server job computes on 1; write 'count: 1' with "
            "'machine: n1-standard-16' and more replicas",
        ),
        (
            "{strategy: one_device, chief: {machine: n1-standard-8}, disk: {type: hyperdisk-balanced}}",
            "disk.type: chief's n1-standard-8 does not boot from hyperdisk-balanced (allowed: pd-ssd, pd-",
        ),
        (
            "{strategy: one_device, chief: {}, scheduling: {timeout: 999999999d}}",
            "scheduling.timeout: 999999999d is more than 30 days; write for example 7d",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_its_repair(tmp_path: Path, text: str, says: str):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(UserError, match=re.escape(says)):
        Cluster.load(tmp_path / "a.yaml")


PREFIXES = {"chief": "master", "worker": "worker", "ps": "parameterServer", "evaluator": "evaluator"}
KINDS = st.sampled_from([*LEGACY_MACHINES, *USUAL])


@st.composite
def training_inputs(draw: st.DrawFn) -> dict[str, Any]:
    values: dict[str, Any] = {"scaleTier": "CUSTOM"}
    for role, prefix in PREFIXES.items():
        count = 1 if role == "chief" else draw(st.integers(0, 1 if role == "evaluator" else 3))
        kind = draw(KINDS)
        values[f"{prefix}Type"] = kind
        if role != "chief":
            values[f"{prefix}Count"] = count
        config: dict[str, Any] = {}
        if kind not in LEGACY_MACHINES and (
            rows := [row for row in USUAL_ROWS if row["machine_type"] == kind and row["accelerator"]]
        ):
            row = draw(st.sampled_from(rows))
            number = int(draw(st.sampled_from(row["allowed_counts"].split(";"))))
            if kind.startswith(("g2", "a2")) or draw(st.booleans()):
                config["acceleratorConfig"] = {"type": row["accelerator"], "count": number}
        if not draw(st.integers(0, 3)):
            config["diskConfig"] = {"bootDiskType": draw(st.sampled_from(DISKS[:2]))}
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
        kind, config = values[f"{prefix}Type"], values.get(f"{prefix}Config", {})
        gpu = config.get("acceleratorConfig", {})
        legacy = LEGACY_MACHINES.get(kind, (kind, gpu.get("type"), gpu.get("count", 0)))
        if count:
            pools[role] = (count, *legacy)
    return pools


@settings(max_examples=150, database=None)
@given(training_inputs(), st.sampled_from([[], ["--sync"]]))
def test_every_job_of_ai_platform_becomes_a_cluster_and_strict_refuses_exactly_what_is_changed(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any], flags: list[str]
):
    path = tmp_path_factory.getbasetemp() / "config.yaml"
    path.write_text(json.dumps({"trainingInput": values}))
    source = resolve(read(path), flags)
    cluster = Cluster.of(source)
    assert not broken_rules(cluster.to_dict())
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
