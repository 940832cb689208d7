"""Figures of a model's outputs, compared with their definitions."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.errors import user_error
from trainer.tasks.of_dataset import Binary, Classification, Regression

TASK = Classification(("no", "yes"))


def test_figures_of_bfloat16_are_exact():
    draw = np.random.default_rng(0)
    labels, logits = draw.integers(0, 2, 400), tf.cast(draw.normal(size=(400, 2)), "bfloat16")
    exact = TASK.losses(labels, tf.cast(logits, tf.float32))
    np.testing.assert_array_equal(TASK.losses(labels.astype("uint8"), logits), exact)
    sums = tf.reduce_sum(TASK.answer(logits)["probabilities"], axis=1)
    np.testing.assert_allclose(sums, 1, rtol=1e-6)


def test_accuracy_ranks_where_auc_is_undefined():
    score = TASK.measure(np.full((4, 2), 0.5), np.zeros(4, int))
    assert score == pytest.approx({"loss": np.log(2), "accuracy": 1.0})
    assert TASK.rank({**score, "loss": 0.5}) > TASK.rank(score)
    assert TASK.rank({**score, "auc": 0.9}) > TASK.rank({**score, "auc": 0.8, "accuracy": 2.0})


def test_r2_and_rmse_by_target():
    labels = np.array([[1, 5], [2, 5], [3, 5]], np.float32)
    task = Regression(("x", "constant"), (1.0, 1.0))
    measured = task.measure(labels + np.array([1, 2]), labels)
    assert measured["r2"] == pytest.approx(1 - 1 / (2 / 3))
    assert (measured["rmse_x"], measured["rmse_constant"]) == pytest.approx((1.0, 2.0))


def test_metrics_without_names_have_the_same():
    for _ in range(2):
        task = Binary(("no", "yes"), metrics=[keras.metrics.Recall()])
        assert task.metric_names == ("accuracy", "auc", "recall")


def test_unsuitable_loss_or_ranking_is_error():
    with user_error("cannot be ranked by top, but by loss, accuracy, auc"):
        Classification(("no", "yes"), rank_by="top")
    reduced = Regression(("a",), (1.0,), loss=keras.losses.Huber())
    with user_error("reduction='none' does"):
        reduced.losses(tf.zeros([4, 1]), tf.zeros([4, 1]))
