import pytest

from common.errors import UserError
from components.convert.options import Options
from components.train import component
from components.train.cluster.lookup import load_cluster
from tests.rides import convert_quietly


def test_dataset_without_test_split_is_refused(tmp_path):
    convert_quietly(Options(output=str(tmp_path), test_fraction=0))
    cluster = load_cluster("BASIC").to_json()
    flags = ["--train-steps=1"]
    with pytest.raises(UserError, match="has no examples in split 'test'"):
        component.plan(cluster, "local", "i", flags, [], "j", [], str(tmp_path))
