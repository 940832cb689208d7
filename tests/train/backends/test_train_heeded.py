"""Every key of the cluster file times every back end: it changes what runs, or the back end says that it ignores it."""

import contextlib
import json
from typing import Any

import pytest
from train_golden import described_keys

from components.train.__main__ import BACKENDS, parse
from components.train.backends import process, ssh
from components.train.backends.backend import Job
from components.train.backends.program import Program
from components.train.backends.ssh import Host
from components.train.cluster.cluster_file import Cluster

POOL = {"machine": "n1-standard-8", "accelerator": {"type": "NVIDIA_TESLA_T4", "count": 1}}
BASE = {"strategy": "multi_worker_mirrored", "chief": POOL, "worker": POOL}
GPUS = "0,1,2,3,4,5,6,7"


def pools(**changes: Any) -> dict[str, Any]:
    return {role: POOL | changes for role in ("chief", "worker")}


# By key: what has another value for it than the base. What each strategy does is a matter of the trainer, which is told.
OTHER: dict[str, dict[str, Any] | None] = {
    **dict.fromkeys(("strategy", "chief", "ps", "accelerator", "scheduling")),
    "worker": {"worker": POOL | {"replicas": 3}},
    "evaluator": {"evaluator": POOL},
    "machine": pools(machine="n1-standard-16"),
    "replicas": {"worker": POOL | {"replicas": 2}},
    "accelerator.type": pools(accelerator={"type": "NVIDIA_TESLA_P4", "count": 1}),
    "accelerator.count": pools(accelerator={"type": "NVIDIA_TESLA_T4", "count": 2}),
    "alternatives": pools(alternatives=[{"machine": "n1-standard-16", "accelerator": POOL["accelerator"]}]),
    "disk": {"disk": {"size_gb": 200}},
    "disk.type": {"disk": {"type": "pd-standard"}},
    "disk.size_gb": {"disk": {"size_gb": 300}},
    "scheduling.strategy": {"scheduling": {"strategy": "SPOT"}},
    "scheduling.timeout": {"scheduling": {"timeout": "1h"}},
    "scheduling.max_restarts": {"scheduling": {"max_restarts": 3}},
}


def planned(backend: str, cluster: Cluster) -> Any:
    words = {"ssh": ["--hosts", "hosts"], "vertex": ["--image", "i"]}.get(backend, [])
    options = BACKENDS[backend].Options.of(parse(["--backend", backend, "--dry-run", *words]))
    program = Program(command=("true",), job_dir="gs://b/j" if backend == "vertex" else "job")
    with BACKENDS[backend](options).plan(Job(cluster=cluster, program=program, dry_run=True)) as plan:
        return plan


def what_runs(backend: str, cluster: Cluster) -> Any:
    plan = planned(backend, cluster)
    if backend == "vertex":
        return (
            [{**arguments, "labels": {}} for arguments in plan.arguments],  # One is the name of the job.
            plan.bounds.timeout_s,
            plan.bounds.cluster.scheduling.max_restarts,
        )
    commands = [each.command for each in plan.replicas if backend != "ssh"]  # Those have random paths.
    environs = [{**each.env, "PYTHONPATH": ""} for each in plan.replicas]
    return environs, commands, plan.max_restarts, plan.timeout_s


@pytest.fixture(autouse=True)
def machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "read_hosts", lambda _: [Host(name="a", login="a", slots=9)])
    monkeypatch.setattr(ssh, "ask", lambda *_: {"a": {"cores": 8, "gpus": GPUS.split(",")}})
    monkeypatch.setattr(ssh.random, "sample", lambda ports, count: range(10_001, 10_001 + count))
    monkeypatch.setattr(process, "reserved", lambda count: contextlib.nullcontext(range(10_001, 10_001 + count)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", GPUS)


def test_no_key_is_left_out_of_this_test():
    assert {name.removeprefix("chief.") for name, *_ in described_keys()} == set(OTHER)


@pytest.mark.parametrize("backend", ["process", "docker", "ssh", "vertex"])
@pytest.mark.parametrize("key", [key for key, other in OTHER.items() if other is not None])
def test_key_changes_what_runs_or_is_told_to_be_ignored(backend: str, key: str):
    cluster = Cluster.from_json(json.dumps(BASE | OTHER[key]))
    base = Cluster.from_json(json.dumps(BASE))
    told = " ".join(BACKENDS[backend](None).ignored(cluster))
    name = "disk" if key.startswith("disk") else key
    if what_runs(backend, cluster) == what_runs(backend, base):
        assert f"--backend {backend} ignores " in told
        assert name in told.partition(" ignores ")[2].partition(", as ")[0].split(", ")
    else:
        assert name not in told.split(", as ")[0].split()
    if backend != "vertex":
        assert told in planned(backend, cluster).notes
