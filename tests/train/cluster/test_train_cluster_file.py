import re
from pathlib import Path

import pytest

from common.errors import UserError
from components.train.cluster.cluster_file import Cluster, Scheduling
from components.train.cluster.lookup import load_cluster


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("1h", 3600), ("7d", 604_800)]
)
def test_duration_is_in_seconds(text: str, seconds: int):
    assert Scheduling(timeout=text).timeout_s == seconds


def test_json_round_trip_restores_integers():
    cluster = load_cluster(Path(__file__).parents[1] / "sources" / "everything.yaml")
    text = cluster.to_json()
    # As protobuf's numbers come.
    assert Cluster.from_json(re.sub(r"(: \d+)(?=[,}])", r"\1.0", text)).to_json() == text


CHOICES = """{
    "strategy": "parameter_server",
    "chief": {"machine": "n1-standard-4", "alternatives": [{"machine": "e2-standard-4"}]},
    "worker": {"machine": "n1-standard-8", "replicas": 2, "alternatives": [
        {"machine": "n1-standard-8", "accelerator": {"type": "NVIDIA_TESLA_T4"}}, {"machine": "n2-standard-8"}
    ]},
    "ps": {"machine": "n1-highmem-2"}
}"""


def test_choices_take_alternatives_of_all_pools():
    choices = Cluster.from_json(CHOICES).choices
    assert [[pool.shape for pool in choice.pools.values()] for choice in choices] == [
        ["n1-standard-4", "n1-standard-8", "n1-highmem-2"],
        ["e2-standard-4", "n1-standard-8 with 1 NVIDIA_TESLA_T4", "n1-highmem-2"],
        ["e2-standard-4", "n2-standard-8", "n1-highmem-2"],
    ]
    assert all(choice.choices == [choice] and choice.worker.replicas == 2 for choice in choices)


@pytest.mark.parametrize("text", ["", "[]", '{"strategy": "one_device"}', "[" * 100_000])
def test_bad_json_is_refused(text: str):
    with pytest.raises(UserError, match="cluster as JSON: "):
        Cluster.from_json(text)
