"""Every shipped cluster file and every configuration of the documents that this project follows, planned in full."""

import json
from pathlib import Path

import pytest
from google_cloud_pipeline_components.container.v1.gcp_launcher.utils.json_util import recursive_remove_empty
from train_fakes import planned
from train_golden import CLUSTERS, GOLDEN, ROOT, text

from components.train.backends.backend import Job
from components.train.backends.program import Program
from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.lookup import load_cluster
from trainer.cluster.member import from_environment

TF_CONFIGS = json.loads((GOLDEN.parent / "tf_configs.json").read_text())


PROGRAM = Program(command=("program",), job_dir="job")


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("stem", CLUSTERS)
def test_plan_is_the_one_that_was_reviewed(stem: str):
    assert (GOLDEN / f"{stem}.txt").read_text() == text(CLUSTERS[stem])


@pytest.mark.parametrize("stem", CLUSTERS)
def test_every_replica_finds_itself_and_others(stem: str):
    cluster = load_cluster(CLUSTERS[stem])
    plan = planned(Job(cluster=cluster, program=PROGRAM), Path("logs"))
    training = {role: pool.replicas for role, pool in cluster.pools.items() if role != "evaluator"}
    members = {replica.name: from_environment(replica.env) for replica in plan.replicas}
    assert list(members) == [f"{me.role}/{me.index}" for me in members.values()]
    assert len(members) == cluster.replicas
    addresses = next(iter(members.values())).addresses
    assert all(me.addresses == addresses for me in members.values())
    hosts = [host for of_role in addresses.values() for host in of_role]
    assert len(hosts) == len(set(hosts))
    sizes = {role: len(of_role) for role, of_role in addresses.items()}
    assert sizes == (training if sum(training.values()) > 1 else {})


@pytest.mark.parametrize("stem", CLUSTERS)
def test_pools_are_dense_and_survive_the_pipelines_launcher_with_and_without_machines(stem: str):
    cluster = load_cluster(CLUSTERS[stem])
    named = all(pool.machine for pool in cluster.pools.values())
    specs = plan_vertex(cluster, "image", [], machines=named)
    assert len(specs) == len(cluster.pools)
    assert recursive_remove_empty({"worker_pool_specs": specs}) == {"worker_pool_specs": specs}


@pytest.mark.parametrize("case", TF_CONFIGS, ids=[case["what"] for case in TF_CONFIGS])
def test_trainer_reads_what_each_launcher_sets(case: dict):
    environ = {name: json.dumps(value) for name, value in case["environ"].items() if name != "TRAINER_POOL_ROLES"}
    if roles := case["environ"].get("TRAINER_POOL_ROLES"):
        environ["TRAINER_POOL_ROLES"] = roles
    me = from_environment(environ)
    assert {
        "role": me.role,
        "index": me.index,
        "is_chief": me.is_chief,
        "strategy": me.default_strategy,
        "addresses": {role: list(hosts) for role, hosts in me.addresses.items()},
    } == case["member"]
