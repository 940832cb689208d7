import json
from pathlib import Path

import pytest

from common.errors import UserError
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import load_cluster


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1h", 3600), ("7d", 604_800)])
def test_duration_is_in_seconds(tmp_path: Path, text: str, seconds: int):
    (tmp_path / "a.yaml").write_text(f"strategy: one_device\nchief: {{}}\nscheduling: {{timeout: {text}}}")
    assert load_cluster(tmp_path / "a.yaml").scheduling.timeout_s == seconds


def floats(value):
    """`value` with integers as floats, as protobuf's numbers come."""
    if isinstance(value, dict):
        return {key: floats(each) for key, each in value.items()}
    return float(value) if isinstance(value, int) else value


def test_json_round_trip_restores_integers():
    cluster = load_cluster(Path(__file__).parents[1] / "sources" / "everything.yaml")
    again = Cluster.from_json(json.dumps(floats(json.loads(cluster.to_json()))))
    assert again == cluster
    assert again.to_json() == cluster.to_json()
    assert type(again.worker.replicas) is type(again.disk.size_gb) is type(again.worker.accelerator.count) is int


def test_choices_take_alternatives_of_all_pools():
    gpu = {"type": "NVIDIA_TESLA_T4"}
    values = {
        "strategy": "parameter_server",
        "chief": {"machine": "n1-standard-4", "alternatives": [{"machine": "e2-standard-4"}]},
        "worker": {
            "machine": "n1-standard-8",
            "replicas": 2,
            "alternatives": [{"machine": "n1-standard-8", "accelerator": gpu}, {"machine": "n2-standard-8"}],
        },
        "ps": {"machine": "n1-highmem-2"},
    }
    cluster = Cluster.from_json(json.dumps(values))
    assert Cluster.from_json(cluster.to_json()).choices == cluster.choices
    taken = [[(pool.machine, pool.gpus) for pool in choice.pools.values()] for choice in cluster.choices]
    ps = ("n1-highmem-2", 0)
    assert taken == [
        [("n1-standard-4", 0), ("n1-standard-8", 0), ps],
        [("e2-standard-4", 0), ("n1-standard-8", 1), ps],
        [("e2-standard-4", 0), ("n2-standard-8", 0), ps],
    ]
    assert all(choice.choices == [choice] and choice.worker.replicas == 2 for choice in cluster.choices)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"strategy": "one_device"}', "[" * 100_000])
def test_bad_json_is_refused(text: str):
    with pytest.raises(UserError, match="cluster as JSON: "):
        Cluster.from_json(text)
