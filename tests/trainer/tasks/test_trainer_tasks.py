"""Figures of a model's outputs, compared with their definitions."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from common.errors import UserError
from trainer import model_check
from trainer.tasks.of_dataset import Binary, Classification, MultiLabel, Regression

TASK, EXAMPLES = Classification(("no", "yes")), 400


@pytest.fixture
def outputs() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, EXAMPLES)
    return (draw.normal(size=(EXAMPLES, 2)) + np.eye(2)[labels]).astype(np.float32), labels


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_types_of_logits_and_labels(outputs, dtype):
    logits, labels = outputs
    logits = tf.cast(logits, dtype)
    exact = (
        TASK.losses(labels, tf.cast(logits, tf.float32)),
        *TASK.states(labels, tf.cast(logits, tf.float32)),
    )
    for kind in ("int32", "int64", "uint8"):
        actual = TASK.losses(labels.astype(kind), logits), *TASK.states(labels.astype(kind), logits)
        for one, other in zip(actual, exact, strict=True):
            np.testing.assert_array_equal(one, other)
    answer = TASK.answer(logits)
    assert answer["probabilities"].dtype == tf.float32
    np.testing.assert_allclose(tf.reduce_sum(answer["probabilities"], axis=1), 1, rtol=1e-6)
    expected = [TASK.class_names[i] for i in answer["class_index"].numpy()]
    assert [name.decode() for name in answer["class_name"].numpy()] == expected


def test_accuracy_ranks_where_auc_is_undefined():
    score = TASK.measure(np.full((4, 2), 0.5), np.zeros(4, int))
    assert score == pytest.approx({"loss": np.log(2), "accuracy": 1.0})
    score = {"loss": 0.5, "accuracy": 0.75}
    assert TASK.rank(score) > TASK.rank({"loss": 0.6, "accuracy": 0.75})
    assert TASK.rank({"loss": 9.0, "accuracy": 0.1, "auc": 0.9}) > TASK.rank(
        {"loss": 0.0, "accuracy": 1.0, "auc": 0.8}
    )


def test_r2_and_rmse_by_target():
    labels = np.array([[1, 5], [2, 5], [3, 5]], np.float32)
    measured = Regression(("x", "constant"), (1.0, 1.0)).measure(labels + np.array([1, 2]), labels)
    assert measured["r2"] == pytest.approx(1 - 1 / (2 / 3))
    assert (measured["rmse_x"], measured["rmse_constant"]) == pytest.approx((1.0, 2.0))
    mean = np.full_like(labels, labels.mean(axis=0))
    assert Regression(("x", "constant"), (1.0, 1.0)).measure(mean, labels)["r2"] == 0


def test_metrics_without_names_have_the_same():
    first, second = (
        Binary(("no", "yes"), metrics=[keras.metrics.Recall()]).metric_names for _ in range(2)
    )
    assert first == second == ("accuracy", "auc", "recall")


def test_unsuitable_losses_and_metrics_are_errors():
    task = MultiLabel(("a", "b"), metrics=[keras.metrics.F1Score()])
    with pytest.raises(UserError, match="metric f1_score is not one number"):
        model_check.check_metrics(
            task, tf.constant([[0, 1], [1, 1]]), tf.constant([[0.1, 0.2], [0.3, 0.4]])
        )
    with pytest.raises(UserError, match=r"two metrics, .* are called accuracy"):
        Classification(
            ("no", "yes"), metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
        )
    with pytest.raises(UserError, match="cannot be ranked by top, but by loss, accuracy, auc"):
        Classification(("no", "yes"), rank_by="top")
    reduced = Regression(("a",), (1.0,), loss=keras.losses.Huber())
    with pytest.raises(UserError, match="reduction='none' does"):
        reduced.losses(tf.zeros([4, 1]), tf.zeros([4, 1]))
