"""Tests of every key of the cluster file with every back end: it changes the plan, or is reported as ignored."""

import json
import re
from typing import Any

import pytest
from train_clients import Clients
from train_golden import described_keys

from components.train.__main__ import BACKENDS, parse
from components.train.backends.backend import Job
from components.train.backends.program import Program
from components.train.cluster.cluster_file import Cluster

POOL = {"machine": "n1-standard-8", "accelerator": {"type": "NVIDIA_TESLA_T4", "count": 1}}
BASE = {"strategy": "multi_worker_mirrored", "chief": POOL, "worker": POOL}


def pools(**changes: Any) -> dict[str, Any]:
    return {role: POOL | changes for role in ("chief", "worker")}


# A change of the base by key. What a strategy does is the matter of the trainer, to which the key
# is passed.
OTHER: dict[str, dict[str, Any] | None] = {
    **dict.fromkeys(("strategy", "chief", "ps", "accelerator", "scheduling")),
    "worker": {"worker": POOL | {"replicas": 3}},
    "evaluator": {"evaluator": POOL},
    "machine": pools(machine="n1-standard-16"),
    "replicas": {"worker": POOL | {"replicas": 2}},
    "accelerator.type": pools(accelerator={"type": "NVIDIA_TESLA_P4", "count": 1}),
    "accelerator.count": pools(accelerator={"type": "NVIDIA_TESLA_T4", "count": 2}),
    "alternatives": pools(
        alternatives=[{"machine": "n1-standard-16", "accelerator": POOL["accelerator"]}]
    ),
    "disk": {"disk": {"size_gb": 200}},
    "disk.type": {"disk": {"type": "pd-standard"}},
    "disk.size_gb": {"disk": {"size_gb": 300}},
    "scheduling.strategy": {"scheduling": {"strategy": "SPOT"}},
    "scheduling.timeout": {"scheduling": {"timeout": "1h"}},
    "scheduling.max_restarts": {"scheduling": {"max_restarts": 3}},
}


def planned(backend: str, values: dict[str, Any], hosts: str) -> tuple[Any, str]:
    """Returns what the back end runs for a cluster, without random parts, and the line on ignored keys."""
    cluster = Cluster.from_json(json.dumps(values))
    words = {"ssh": ["--hosts", hosts], "vertex": ["--image", "i"]}.get(backend, [])
    options = BACKENDS[backend].Options.of(parse(["--backend", backend, "--dry-run", *words]))
    program = Program(command=("true",), job_dir="gs://b/j" if backend == "vertex" else "job")
    with BACKENDS[backend](options).plan(
        Job(cluster=cluster, program=program, dry_run=True)
    ) as plan:
        ignored = " ".join(BACKENDS[backend](options).ignored(cluster))
        if backend == "vertex":
            jobs = [{**arguments, "labels": {}} for arguments in plan.arguments]
            return (
                jobs,
                plan.bounds.timeout_s,
                plan.bounds.cluster.scheduling.max_restarts,
            ), ignored
        assert ignored in plan.notes
        content = {
            key: value for key, value in json.loads(plan.to_json()).items() if key != "notes"
        }
    return re.sub(r":\d{5}|/\.code-\w+", "", json.dumps(content)), ignored


def test_every_key_has_another_value():
    assert {name.removeprefix("chief.") for name, *_ in described_keys()} == set(OTHER)


@pytest.mark.parametrize("backend", ["process", "docker", "ssh", "vertex"])
@pytest.mark.parametrize("key", [key for key, other in OTHER.items() if other is not None])
def test_key_changes_plan_or_is_ignored(
    clients: Clients, monkeypatch: pytest.MonkeyPatch, backend: str, key: str
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    (clients.path / "hosts").write_text("localhost slots=9")
    hosts = str(clients.path / "hosts")
    plan, ignored = planned(backend, BASE | OTHER[key], hosts)
    name = "disk" if key.startswith("disk") else key
    names = re.findall(r"[\w.]+", ignored.partition(" ignores ")[2].partition(", as ")[0])
    assert (name in names) is (plan == planned(backend, BASE, hosts)[0])
