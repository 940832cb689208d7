"""Every shipped cluster file and every configuration of the documents that this project follows, planned in full."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from train_golden import CLUSTERS, GOLDEN, environments, text

from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import read
from components.train.cluster.strategies import resolve
from trainer.replicas.member import from_environment

TF_CONFIGS = json.loads((GOLDEN / "tf_config.json").read_text())


@pytest.mark.parametrize("stem", CLUSTERS)
def test_plan_is_the_one_that_was_reviewed(stem: str):
    assert (GOLDEN / f"{stem}.json").read_text() == text(CLUSTERS[stem])


def test_no_golden_plan_is_left_of_a_file_that_is_gone():
    assert {path.stem for path in GOLDEN.glob("*.json")} == {*CLUSTERS, "tf_config"}


@pytest.mark.parametrize("stem", CLUSTERS)
def test_every_replica_of_every_plan_finds_itself_on_each_back_end(stem: str):
    cluster = Cluster.of(resolve(read(CLUSTERS[stem])))
    training = {role: pool.replicas for role, pool in cluster.pools.items() if role != "evaluator"}
    for replicas in environments(cluster).values():
        assert len(replicas) == cluster.replicas
        for name, variables in replicas.items():
            me = from_environment(variables)
            assert f"{me.role}/{me.index}" == name
            sizes = {role: len(hosts) for role, hosts in me.addresses.items()}
            assert sizes == (training if sum(training.values()) > 1 else {})


def test_every_address_of_a_plan_is_one_replicas():
    for path in CLUSTERS.values():
        for replicas in environments(Cluster.of(resolve(read(path)))).values():
            members = {name: from_environment(variables) for name, variables in replicas.items()}
            addresses = [host for hosts in next(iter(members.values())).addresses.values() for host in hosts]
            assert len(addresses) == len(set(addresses))
            assert all(me.addresses == next(iter(members.values())).addresses for me in members.values())


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


def test_homework_has_no_parameter_server_without_a_count_and_says_so():
    for name in ("homework-cpu", "homework-gpu", "cifar10-estimator"):
        plan = json.loads((GOLDEN / f"source-{name}.json").read_text())
        assert list(plan["cluster"])[:3] == ["strategy", "chief", "worker"]
        assert any("without parameterServerCount there are none" in note for note in plan["notes"])


def test_documents_keep_their_shapes():
    shapes = {
        "source-homework-repository": ("parameter_server", {"chief": 1, "worker": 3, "ps": 1}),
        "source-taxi-distributed": ("parameter_server", {"chief": 1, "worker": 4, "ps": 1}),
        "source-mnist": ("multi_worker_mirrored", {"chief": 1, "worker": 1}),
        "source-survival": ("mirrored", {"chief": 1}),
        "source-mxnet": ("parameter_server", {"chief": 1, "worker": 2, "ps": 2}),
        "tier-STANDARD_1": ("parameter_server", {"chief": 1, "worker": 4, "ps": 3}),
        "tier-PREMIUM_1": ("parameter_server", {"chief": 1, "worker": 19, "ps": 11}),
    }
    for stem, (strategy, shape) in shapes.items():
        cluster = Cluster.load(CLUSTERS[stem])
        assert (cluster.strategy, {role: pool.replicas for role, pool in cluster.pools.items()}) == (strategy, shape)


def test_source_files_are_all_read(tmp_path: Path):
    assert len([stem for stem in CLUSTERS if stem.startswith("source-")]) == 11
