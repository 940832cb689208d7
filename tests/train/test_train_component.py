import pytest

from common.errors import UserError
from components.convert.options import Options
from components.train import component
from components.train.cluster.lookup import load_cluster
from tests.rides import convert_quietly


def planned(place, *job_args):
    cluster = load_cluster("BASIC").to_json()
    return component.plan(cluster, "local", "i", ["--train-steps=1"], job_args, "j", [], str(place))


def test_settings_reach_worker_pools(digits):
    [pool] = planned(digits, "--env=LEVEL=2")
    assert {"name": "LEVEL", "value": "2"} in pool["container_spec"]["env"]


def test_dataset_without_test_split_is_refused(tmp_path):
    convert_quietly(Options(output=str(tmp_path), test_fraction=0))
    with pytest.raises(UserError, match="has no examples in split 'test'"):
        planned(tmp_path)
