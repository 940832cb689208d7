from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from common.manifest import Manifest, Split, Summary
from components.evaluate.checks import check_splits, metric_names
from components.train.cluster.lookup import load_cluster
from components.train.component import plan
from trainer.tasks.of_dataset import Classification, MultiLabel, Regression


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_metric_names_are_those_of_tasks(names):
    truth, names = np.eye(len(names)), tuple(names)
    tasks = {"regression": Regression(names, (1.0,) * len(names)), "multi_label": MultiLabel(names)}
    for kind, task in tasks.items():
        assert set(task.measure(truth * 0.5 + 0.1, truth)) == metric_names(kind, names)
    measured = Classification(names).measure(truth * 0.5 + 0.1, truth.argmax(axis=1))
    assert set(measured) == metric_names("classification", names)


def planned(dataset, *, trainer=(), evaluation=()):
    return plan(
        cluster=load_cluster("clusters/local.yaml", []).to_json(),
        backend="local",
        image="image",
        trainer_args=["--train-steps=1", *trainer],
        job_args=[],
        job_dir="job",
        evaluate_args=list(evaluation),
        dataset=SimpleNamespace(path=str(dataset)),
    )


@pytest.mark.parametrize(
    ("step", "flags", "message"),
    [
        (
            "evaluation",
            ["--slice=colour"],
            "unknown column of slices, in dataset 'trips', 'colour'",
        ),
        (
            "evaluation",
            ["--threshold=rmse=1"],
            "unknown metric of a threshold 'rmse' .known: accuracy, auc, loss",
        ),
        ("trainer", ["--model=trips:constant"], "no weight has a gradient"),
        (
            "trainer",
            ["--dropout=0.5", "--num-layers=9"],
            "--num-layers means nothing to --model wide_deep",
        ),
    ],
)
def test_plan_refuses_what_steps_would(data, step, flags, message):
    """A flag that fits neither the model nor the dataset is an error before machines are taken."""
    with pytest.raises(UserError, match=message):
        planned(data, **{step: flags})


def test_plan_accepts_what_steps_would(data):
    assert planned(data, evaluation=["--slice=company", "--threshold=auc=0.5"])
    assert planned(data, trainer=["--model=trips:of_my_own"], evaluation=["--threshold=mine=1"])


def manifest(train, test, *, class_names=(), **label):
    splits = {"train": train, "test": test}
    about = {"name": "m", "origin": "", "features": (), "label": "label", "arguments": {}}
    return Manifest(**about, splits=splits, class_names=class_names, **label)


@given(st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=2, max_size=2))
def test_splits_with_one_class_refused(histograms):
    """Training and test split need at least two classes each that have examples."""
    splits = [
        Split(examples=sum(counts), class_histogram=tuple(counts), shards=())
        for counts in histograms
    ]
    dataset = manifest(*splits, class_names=("a", "b", "c"))
    if all(np.count_nonzero(counts) > 1 for counts in histograms):
        check_splits(dataset)
    else:
        with pytest.raises(UserError, match=r"has no examples in split|so no model can be better"):
            check_splits(dataset)


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_splits_with_constant_target_refused(lowest, highest):
    """A target of regression needs two different values in the training split."""
    split = Split(
        examples=2,
        class_histogram=(),
        shards=(),
        summaries={"label.fare": Summary(mean=lowest, min=lowest, max=highest)},
    )
    dataset = manifest(split, split, task="regression", targets=("fare",))
    if lowest != highest:
        check_splits(dataset)
    else:
        with pytest.raises(UserError, match="all 2 examples of split 'train' have label "):
            check_splits(dataset)
