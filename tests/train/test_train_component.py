import types

import pytest

from common.errors import UserError
from components.convert.convert import convert
from components.convert.options import Options
from components.train import component
from components.train.cluster.lookup import load_cluster


def test_dataset_without_test_split_is_refused(tmp_path):
    cluster = load_cluster("clusters/local.yaml").to_json()

    def planned(test_fraction: float) -> list:
        place = str(tmp_path / str(test_fraction))
        convert(Options(output=place, test_fraction=test_fraction))
        dataset = types.SimpleNamespace(path=place)
        return component.plan(
            cluster, "local", "image", ["--train-steps", "1"], [], "job", [], dataset
        )

    assert len(planned(0.2)) == 1
    with pytest.raises(UserError, match="has no examples in split 'test'"):
        planned(0)
