import re
from pathlib import Path

import pytest

from common.errors import UserError
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import load_cluster, read
from tests.root import ROOT

CLUSTERS = ROOT / "clusters"
TOGETHER = "multi_worker_mirrored"


def test_json_round_trip_restores_integers():
    cluster = load_cluster(Path(__file__).parents[1] / "sources" / "everything.yaml")
    text = cluster.to_json()
    # As protobuf's numbers come.
    assert Cluster.from_json(re.sub(r"(: \d+)(?=[,}])", r"\1.0", text)).to_json() == text


@pytest.mark.parametrize(
    ("name", "flags", "override", "dropped_by"),
    [
        ("STANDARD_1", ["--sync"], None, "--sync"),
        ("STANDARD_1", ["--strategy", TOGETHER], None, "--strategy"),
        (CLUSTERS / "local-ps.yaml", [], TOGETHER, "--strategy"),
        (CLUSTERS / "local-sync.yaml", ["--sync"], None, None),
    ],
)
def test_flag_drops_parameter_servers(name, flags, override, dropped_by):
    source = read(name, flags, override)
    assert (source.cluster.strategy, source.cluster.ps) == (TOGETHER, None)
    dropped = f"{dropped_by}: the parameter servers are dropped: synchronous workers reduce"
    assert (dropped in "".join(source.replacements)) is bool(dropped_by)
    assert "--sync" not in source.trainer_flags(flags)


def test_sync_with_parameter_servers_is_refused():
    with pytest.raises(
        UserError, match="--sync: parameter servers train asynchronously in TensorFlow 2"
    ):
        read("STANDARD_1", ["--sync", "--strategy=parameter_server"])
