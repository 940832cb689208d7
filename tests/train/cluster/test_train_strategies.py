from pathlib import Path

import pytest

from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import read
from components.train.cluster.strategies import job_flags, resolve
from trainer.base.errors import UserError

CLUSTERS = Path(__file__).parents[3] / "clusters"
SYNC = ["--train-steps", "9", "--sync"]


@pytest.mark.parametrize("name", ["STANDARD_1", str(CLUSTERS / "vertex-ps.yaml")])
def test_synchronous_parameter_servers_become_all_reduce_and_that_is_said(name: str):
    source = resolve(read(name), SYNC)
    cluster = Cluster.of(source)
    assert (cluster.strategy, list(cluster.pools)) == ("multi_worker_mirrored", ["chief", "worker"])
    assert cluster.worker.replicas == 4
    assert source.notes[-1].changes
    assert str(source.notes[-1]).startswith("--sync: the parameter servers are dropped")
    assert job_flags(source, SYNC) == ["--train-steps", "9"]


def test_sync_changes_nothing_where_training_is_synchronous():
    source = resolve(read(CLUSTERS / "local-sync.yaml"), SYNC)
    assert Cluster.of(source).strategy == "multi_worker_mirrored"
    assert not source.notes


@pytest.mark.parametrize("flags", [["--strategy", "multi_worker_mirrored"], ["--strategy=multi_worker_mirrored"]])
def test_flag_of_the_trainer_decides_where_the_file_names_none(flags: list[str]):
    assert Cluster.of(resolve(read("STANDARD_1"), flags)).strategy == "multi_worker_mirrored"


def test_flag_of_the_launcher_overrides_our_file_too():
    source = resolve(read(CLUSTERS / "local-ps.yaml"), [], "multi_worker_mirrored")
    assert list(Cluster.of(source).pools) == ["chief", "worker"]
    assert str(source.notes[0]).startswith("--strategy: the parameter servers are dropped")
    assert Cluster.of(resolve(read(CLUSTERS / "local.yaml"), [], "mirrored")).strategy == "mirrored"


@pytest.mark.parametrize(
    ("name", "flags", "strategy", "says"),
    [
        ("STANDARD_1", SYNC, "parameter_server", "--sync: parameter servers train asynchronously"),
        ("STANDARD_1", [], "mirrored", "--strategy mirrored is for one machine, and STANDARD_1 has workers"),
        ("BASIC", [], "parameter_server", "--strategy parameter_server: BASIC has no parameter servers"),
        ("BASIC", ["--strategy", "sync"], None, "BASIC: strategy: unknown value 'sync'"),
        ("BASIC", ["--strategy"], None, "argument --strategy: expected one argument"),
    ],
)
def test_contradictions_are_refused(name: str, flags: list[str], strategy: str | None, says: str):
    with pytest.raises(UserError, match=says):
        Cluster.of(resolve(read(name), flags, strategy))
