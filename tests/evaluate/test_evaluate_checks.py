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


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c"), ("a",)], ids=len)
def test_metric_names_are_those_of_tasks(names):
    labels = np.eye(len(names))[[0, -1, 0]]
    for name, task in (
        ("regression", Regression(names, ((1.0),) * len(names))),
        ("multi_label", MultiLabel(names)),
        ("classification", Classification(names)),
    ):
        truth = labels.argmax(axis=1) if name == "classification" else 1 - np.arange(3)[:, np.newaxis] % 2 * labels
        assert set(task.measure(labels * 0.5 + 0.1, truth)) == metric_names(name, names)


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
    planned["trainer_args"].append("--model=my.model:network")
    assert plan(**planned, evaluate_args=["--threshold=mine=1"])
