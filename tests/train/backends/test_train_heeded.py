"""Every key of the cluster file changes a back end's plan, or is reported as ignored."""

import json
import re
from typing import Any

import pytest
from train_golden import described_keys

from components.train.__main__ import BACKENDS
from components.train.backends.backend import Job
from components.train.backends.program import Program
from components.train.cluster.cluster_file import Cluster

T4 = {"type": "NVIDIA_TESLA_T4", "count": 1}
POOL = {"machine": "n1-standard-8", "accelerator": T4}
BASE = {"strategy": "multi_worker_mirrored", "chief": POOL, "worker": POOL}


def pools(**changes):
    return {role: POOL | changes for role in ("chief", "worker")}


# A change of the base by key. What a strategy does is the matter of the trainer, to which the key
# is passed.
OTHER: dict[str, dict[str, Any] | None] = {
    **dict.fromkeys(("strategy", "chief", "worker", "ps", "accelerator", "disk", "scheduling")),
    "pod_template": pools(pod_template={"metadata": {"labels": {"team": "blue"}}}),
    "evaluator": {"evaluator": POOL},
    "machine": pools(machine="n1-standard-16"),
    "replicas": {"worker": POOL | {"replicas": 2}},
    "accelerator.type": pools(accelerator=T4 | {"type": "NVIDIA_TESLA_P4"}),
    "accelerator.count": pools(accelerator=T4 | {"count": 2}),
    "alternatives": pools(alternatives=[POOL | {"machine": "n1-standard-16"}]),
    "disk.type": {"disk": {"type": "pd-standard"}},
    "disk.size_gb": {"disk": {"size_gb": 300}},
    **{
        f"scheduling.{name}": {"scheduling": {name: value}}
        for name, value in {"strategy": "SPOT", "timeout": "1h", "max_restarts": 3}.items()
    },
}


def planned(backend, values):
    """Returns a back end's plan, without random parts, and the line on ignored keys."""
    cluster = Cluster.from_json(json.dumps(values))
    is_vertex, is_kubernetes = backend == "vertex", backend == "kubernetes"
    options = BACKENDS[backend].Options(**({"image": "i"} if is_vertex or is_kubernetes else {}))
    program = Program(command=("true",), job_dir="gs://b/j" if is_vertex else "job")
    job = Job(cluster=cluster, program=program, dry_run=True)
    with BACKENDS[backend](options).plan(job) as plan:
        ignored = " ".join(BACKENDS[backend](options).ignored(cluster))
        if is_vertex:
            jobs = [{**arguments, "labels": {}} for arguments in plan.arguments]
            bounds = plan.bounds
            return str([jobs, bounds.timeout_s, bounds.cluster.scheduling.max_restarts]), ignored
        if is_kubernetes:
            return plan.to_text(), ignored
        assert ignored in plan.notes
        return re.sub(r":\d{5}|notes=.*", "", str(plan)), ignored


def test_every_key_has_another_value():
    assert {name.removeprefix("chief.") for name, *_ in described_keys()} == set(OTHER)


@pytest.mark.parametrize("backend", ["process", "docker", "vertex", "kubernetes"])
@pytest.mark.parametrize("key", [key for key, other in OTHER.items() if other is not None])
def test_key_changes_plan_or_is_ignored(monkeypatch, backend, key):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    plan, ignored = planned(backend, BASE | OTHER[key])
    name = "disk" if key.startswith("disk") else key
    names = re.findall(r"[\w.]+", ignored.partition(" ignores ")[2].partition(", as ")[0])
    assert (name in names) is (plan == planned(backend, BASE)[0])
