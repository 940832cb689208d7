import json
from pathlib import Path

import pytest

from components.train.cluster.cluster_file import Cluster
from trainer.base.errors import UserError


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1h", 3600), ("7d", 604_800)])
def test_durations(tmp_path: Path, text: str, seconds: int):
    (tmp_path / "a.yaml").write_text(f"strategy: one_device\nchief: {{}}\nscheduling: {{timeout: {text}}}")
    assert Cluster.load(tmp_path / "a.yaml").scheduling.timeout_s == seconds


def floats(value):
    """`value` with integers as floats, as protobuf's numbers come."""
    if isinstance(value, dict):
        return {key: floats(each) for key, each in value.items()}
    return float(value) if isinstance(value, int) else value


def test_json_round_trip_brings_integers_back():
    cluster = Cluster.load(Path(__file__).parents[1] / "sources" / "everything.yaml")
    again = Cluster.from_json(json.dumps(floats(json.loads(cluster.to_json()))))
    assert again == cluster
    assert again.to_json() == cluster.to_json()
    assert type(again.worker.replicas) is type(again.disk.size_gb) is type(again.worker.accelerator.count) is int


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"strategy": "one_device"}', "[" * 100_000])
def test_bad_json_is_refused(text: str):
    with pytest.raises(UserError, match="cluster as JSON: "):
        Cluster.from_json(text)
