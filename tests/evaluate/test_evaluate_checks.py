from types import SimpleNamespace

import numpy as np
import pytest
import trips

from components.evaluate.checks import metric_names
from components.train.cluster.cluster_file import Cluster
from components.train.component import plan
from trainer.base.errors import UserError
from trainer.nn.tasks.classification import Classification
from trainer.nn.tasks.multi_label import MultiLabel
from trainer.nn.tasks.regression import Regression


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_metric_names_are_those_of_tasks(names):
    truth = np.eye(len(names))
    names = tuple(names)
    for kind, task, labels in (
        ("regression", Regression(names, (1.0,) * len(names)), truth),
        ("multi_label", MultiLabel(names), truth),
        ("classification", Classification(names), truth.argmax(axis=1)),
    ):
        assert set(task.measure(truth * 0.5 + 0.1, labels)) == metric_names(kind, names)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--slice=colour"], "unknown column of slices, in dataset 'trips', 'colour'"),
        (["--threshold=rmse=1"], "unknown metric of a threshold 'rmse' .known: accuracy, auc, loss"),
    ],
)
def test_plan_refuses_what_evaluation_would(tmp_path, flags, message):
    dataset = SimpleNamespace(path=str(trips.make(tmp_path)))
    one, common = Cluster.load("clusters/local.yaml", []).to_json(), {"image": "i", "job_args": [], "job_dir": "j"}
    planned = {"cluster": one, "backend": "local", "trainer_args": ["--train-steps=1"], "dataset": dataset, **common}
    assert plan(**planned, evaluate_args=["--slice=company", "--threshold=auc=0.5"])
    with pytest.raises(UserError, match=message):
        plan(**planned, evaluate_args=flags)
    own = [*planned.pop("trainer_args"), "--model=my.model:network"]
    assert plan(**planned, trainer_args=own, evaluate_args=["--threshold=mine=1"])
