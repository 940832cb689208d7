from pathlib import Path

import pytest

from common.errors import UserError
from components.train.cluster.lookup import read

CLUSTERS = Path(__file__).parents[3] / "clusters"
SYNC = ["--train-steps", "9", "--sync"]
TOGETHER = "multi_worker_mirrored"


@pytest.mark.parametrize(
    ("name", "flags", "override", "flag"),
    [
        ("STANDARD_1", SYNC, None, "--sync"),
        (CLUSTERS / "vertex-ps.yaml", SYNC, None, "--sync"),
        ("STANDARD_1", ["--strategy", TOGETHER], None, "--strategy"),
        (CLUSTERS / "local-ps.yaml", [], TOGETHER, "--strategy"),
    ],
)
def test_flag_drops_parameter_servers(
    name: str | Path, flags: list[str], override: str | None, flag: str
):
    source = read(name, flags, override)
    assert (source.cluster.strategy, source.cluster.ps) == (TOGETHER, None)
    assert (
        f"{flag}: the parameter servers are dropped: synchronous workers reduce gradients"
        in "".join(source.replacements)
    )


@pytest.mark.parametrize(
    ("name", "override", "strategy"),
    [("local-sync", None, TOGETHER), ("local", "mirrored", "mirrored")],
)
def test_flag_replaces_nothing_else(name: str, override: str | None, strategy: str):
    source = read(CLUSTERS / f"{name}.yaml", SYNC, override)
    assert source.cluster.strategy == strategy
    assert not source.replacements
    assert source.trainer_flags(SYNC) == ["--train-steps", "9"]


def test_sync_with_parameter_servers_is_refused():
    with pytest.raises(
        UserError, match="--sync: parameter servers train asynchronously in TensorFlow 2"
    ):
        read("STANDARD_1", ["--sync", "--strategy=parameter_server"])
