from pathlib import Path

import pytest

from common.errors import UserError
from components.train.cluster.lookup import read

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
def test_flags_choose_and_dropped_servers_are_noted(
    name: str, flags: list[str], strategy: str | None, becomes: str, by: str | None
):
    source = read(CLUSTERS / f"{name}.yaml" if name.islower() else name, flags, strategy)
    cluster = source.cluster
    assert (cluster.strategy, cluster.ps) == (becomes, None)
    dropped = f"{by}: the parameter servers are dropped: synchronous workers reduce gradients among themselves, which "
    assert [text.startswith(dropped) for text in source.replacements if "dropped" in text] == [True] * bool(by)
    assert source.trainer_flags(SYNC) == ["--train-steps", "9"]


def test_sync_with_parameter_servers_is_refused():
    with pytest.raises(UserError, match="--sync: parameter servers train asynchronously in TensorFlow 2"):
        read("STANDARD_1", ["--sync", "--strategy=parameter_server"])
