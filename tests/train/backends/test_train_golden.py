"""Tests of every shipped cluster file and of those in tests/train/sources, planned in full."""

import json

import pytest
from google_cloud_pipeline_components.container.v1.gcp_launcher.utils.json_util import (
    recursive_remove_empty,
)
from train_golden import CLUSTERS, GOLDEN, ROOT, text

from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.lookup import load_cluster
from trainer.cluster.member import from_environment

TF_CONFIGS = json.loads((GOLDEN.parent / "tf_configs.json").read_text())


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(params=CLUSTERS)
def stem(request):
    return request.param


def test_plan_equals_reviewed_one(stem):
    assert (GOLDEN / f"{stem}.txt").read_text() == text(CLUSTERS[stem])


def test_pools_survive_pipeline_launcher(stem):
    """Keeps every pool, as the launcher removes what is empty and so would shift the roles."""
    cluster = load_cluster(CLUSTERS[stem])
    specs = plan_vertex(cluster, "image", [], machines=False)
    assert recursive_remove_empty({"worker_pool_specs": specs}) == {"worker_pool_specs": specs}


@pytest.mark.parametrize("case", TF_CONFIGS, ids=[case["what"] for case in TF_CONFIGS])
def test_trainer_reads_environment_of_launcher(case):
    environ = case["environ"].items()
    me = from_environment({k: v if isinstance(v, str) else json.dumps(v) for k, v in environ})
    assert {
        "role": me.role,
        "index": me.index,
        "is_chief": me.is_chief,
        "strategy": me.default_strategy,
        "addresses": {role: list(hosts) for role, hosts in me.addresses.items()},
    } == case["member"]
