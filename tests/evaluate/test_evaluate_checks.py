import dataclasses

import numpy as np
import pytest

from common.manifest import Split, Summary
from components.convert.options import Options
from components.evaluate.checks import check_splits, metric_names
from components.train.cluster.lookup import load_cluster
from components.train.component import plan
from tests.errors import user_error
from tests.rides import convert_quietly
from trainer.tasks.of_dataset import Classification, MultiLabel, Regression


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_metric_names_are_those_of_tasks(names):
    truth, names = np.eye(len(names)), tuple(names)
    tasks = {
        "regression": (Regression(names, (1.0,) * len(names)), truth),
        "multi_label": (MultiLabel(names), truth),
        "classification": (Classification(names), truth.argmax(axis=1)),
    }
    for kind, (task, labels) in tasks.items():
        assert set(task.measure(truth * 0.5 + 0.1, labels)) == metric_names(kind, names)


def planned(dataset, flags, *trainer):
    return plan(
        cluster=load_cluster("clusters/local.yaml", []).to_json(),
        backend="local",
        image="image",
        trainer_args=["--train-steps=1", *trainer],
        job_args=[],
        job_dir="job",
        evaluate_args=flags,
        dataset=str(dataset),
    )


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--slice=colour", "unknown column of slices, in dataset 'trips', 'colour'"),
        ("--threshold=rmse=1", "unknown metric of a threshold 'rmse' .known: accuracy, auc, loss"),
    ],
)
def test_plan_refuses_what_evaluation_would(data, flag, message):
    """A flag that does not fit the dataset is an error before machines are taken."""
    with user_error(message):
        planned(data, [flag])
    with user_error("must be on Python's path"):
        planned(data, [], "--model=nowhere:net")


def test_plan_needs_test_split(tmp_path):
    convert_quietly(Options(output=str(tmp_path), test_fraction=0))
    with user_error("has no examples in split 'test'"):
        planned(tmp_path, [])


@pytest.mark.parametrize("split", ["train", "test"])
def test_splits_with_one_class_refused(table, split):
    """Training and test split need at least two classes each that have examples."""
    histograms = {"train": (1, 0, 1), "test": (1, 0, 1), split: (0, 3, 0)}
    splits = {
        name: Split(examples=sum(each), class_histogram=each, shards=())
        for name, each in histograms.items()
    }
    with user_error("no model can be better"):
        check_splits(dataclasses.replace(table, splits=splits, class_names=("a", "b", "c")))


def test_split_with_constant_target_refused(table):
    summaries = {"label.fare": Summary(mean=2.0, min=2.0, max=2.0)}
    split = Split(examples=2, class_histogram=(), shards=(), summaries=summaries)
    regression = {"task": "regression", "targets": ("fare",), "class_names": ()}
    dataset = dataclasses.replace(table, splits={"train": split, "test": split}, **regression)
    with user_error("all 2 examples of split 'train' have label 2"):
        check_splits(dataset)
