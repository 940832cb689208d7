from pathlib import Path

import pytest

from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import read
from components.train.cluster.strategies import job_flags, resolve

CLUSTERS = Path(__file__).parents[3] / "clusters"
SYNC = ["--train-steps", "9", "--sync"]


TOGETHER = "multi_worker_mirrored"


@pytest.mark.parametrize(
    ("name", "flags", "strategy", "becomes", "by"),
    [
        ("STANDARD_1", SYNC, None, TOGETHER, "--sync"),
        ("vertex-ps", SYNC, None, TOGETHER, "--sync"),
        ("local-sync", SYNC, None, TOGETHER, None),  # which is synchronous anyway
        ("STANDARD_1", ["--strategy", TOGETHER], None, TOGETHER, "--strategy"),
        ("STANDARD_1", [f"--strategy={TOGETHER}"], None, TOGETHER, "--strategy"),
        ("local-ps", [], TOGETHER, TOGETHER, "--strategy"),
        ("local", [], "mirrored", "mirrored", None),
    ],
)
def test_flags_decide_and_that_parameter_servers_go_is_said(
    name: str, flags: list[str], strategy: str | None, becomes: str, by: str | None
):
    source = resolve(read(CLUSTERS / f"{name}.yaml" if name.islower() else name), flags, strategy)
    cluster = Cluster.of(source)
    assert (cluster.strategy, cluster.ps) == (becomes, None)
    said = f"{by}: the parameter servers are dropped: synchronous workers reduce gradients among themselves, which "
    assert [note.changes for note in source.notes if str(note).startswith(said)] == [True] * bool(by)
    assert job_flags(source, SYNC) == ["--train-steps", "9"]
