from types import SimpleNamespace

import numpy as np
import pytest
import trips
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
    truth = np.eye(len(names))
    names = tuple(names)
    for kind, task, labels in (
        ("regression", Regression(names, (1.0,) * len(names)), truth),
        ("multi_label", MultiLabel(names), truth),
        ("classification", Classification(names), truth.argmax(axis=1)),
    ):
        assert set(task.measure(truth * 0.5 + 0.1, labels)) == metric_names(kind, names)


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
    ("flags", "message"),
    [
        (["--slice=colour"], "unknown column of slices, in dataset 'trips', 'colour'"),
        (["--threshold=rmse=1"], "unknown metric of a threshold 'rmse' .known: accuracy, auc, loss"),
    ],
)
def test_plan_refuses_what_evaluation_would(tmp_path, flags, message):
    dataset = trips.make(tmp_path)
    assert planned(dataset, evaluation=["--slice=company", "--threshold=auc=0.5"])
    with pytest.raises(UserError, match=message):
        planned(dataset, evaluation=flags)


def manifest(splits, **label):
    return Manifest(
        name="m",
        origin="",
        features=(),
        label="label",
        splits=dict(zip(("train", "test"), splits, strict=True)),
        arguments={},
        **{"class_names": (), **label},
    )


@given(st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=2, max_size=2))
def test_splits_with_one_class_refused(histograms):
    """Training and test split need at least two classes each that have examples."""
    splits = [Split(examples=sum(counts), class_histogram=tuple(counts), shards=()) for counts in histograms]
    dataset = manifest(splits, class_names=("a", "b", "c"))
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
    dataset = manifest([split, split], task="regression", targets=("fare",))
    if lowest != highest:
        check_splits(dataset)
    else:
        with pytest.raises(UserError, match="all 2 examples of split 'train' have label "):
            check_splits(dataset)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model=trips:constant"], "no weight has a gradient"),
        (["--dropout=0.5", "--num-layers=9"], "--num-layers means nothing to --model wide_deep"),
    ],
)
def test_plan_refuses_what_training_would(tmp_path, flags, message):
    """A model that cannot be trained, or a flag that does not fit it, ends before machines are taken."""
    with pytest.raises(UserError, match=message):
        planned(trips.make(tmp_path), trainer=flags)
    assert planned(tmp_path / "data", trainer=["--model=trips:of_my_own"], evaluation=["--threshold=mine=1"])
