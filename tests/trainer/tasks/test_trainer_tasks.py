"""Figures of a model's outputs, compared with their definitions."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from common.errors import UserError
from trainer.tasks.classification import Binary, Classification
from trainer.tasks.multi_label import MultiLabel
from trainer.tasks.own import Own
from trainer.tasks.regression import Regression

TASK, EXAMPLES = Classification(("no", "yes")), 400


@pytest.fixture
def outputs() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, EXAMPLES)
    return (draw.normal(size=(EXAMPLES, 2)) + np.eye(2)[labels]).astype(np.float32), labels


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_logits_of_any_type_and_labels_of_any_make_sums_and_answers_in_float32(outputs, dtype):
    logits, labels = outputs
    logits = tf.cast(logits, dtype)
    exact = TASK.losses(tf.cast(logits, tf.float32), labels), *TASK.states(tf.cast(logits, tf.float32), labels)
    for kind in ("int32", "int64", "uint8"):
        found = TASK.losses(logits, labels.astype(kind)), *TASK.states(logits, labels.astype(kind))
        for one, other in zip(found, exact, strict=True):
            np.testing.assert_array_equal(one, other)
    answer = TASK.answer(logits)
    assert answer["probabilities"].dtype == tf.float32
    np.testing.assert_allclose(tf.reduce_sum(answer["probabilities"], axis=1), 1, rtol=1e-6)
    expected = [TASK.class_names[i] for i in answer["class_index"].numpy()]
    assert [name.decode() for name in answer["class_name"].numpy()] == expected


def test_of_one_class_alone_there_is_no_auc_and_accuracy_ranks():
    score = TASK.score(0.5, [3, 4], [np.ones([3, 2, 1])])
    assert score == {"loss": 0.5, "accuracy": 0.75}
    assert TASK.rank(score) > TASK.rank({"loss": 0.6, "accuracy": 0.75})
    assert TASK.rank({"loss": 9.0, "accuracy": 0.1, "auc": 0.9}) > TASK.rank({"loss": 0.0, "accuracy": 1.0, "auc": 0.8})


DRAW = np.random.default_rng(1)
NUMBERS = DRAW.normal(size=(EXAMPLES, 3)).astype(np.float32)
TRUTHS = (NUMBERS + DRAW.normal(size=(EXAMPLES, 3)) > 0).astype(np.int64)
LOGIT, LABELS = Binary(("no", "yes")), MultiLabel(("a", "b", "c"))


def test_r2_is_the_share_of_the_variance_that_is_explained_and_each_target_has_its_own_error():
    labels = np.array([[1, 5], [2, 5], [3, 5]], np.float32)
    measured = Regression(("x", "constant"), (1.0, 1.0)).measure(labels + np.array([1, 2]), labels)
    assert measured["r2"] == pytest.approx(1 - 1 / (2 / 3))
    assert (measured["rmse_x"], measured["rmse_constant"]) == pytest.approx((1.0, 2.0))
    mean = np.full_like(labels, labels.mean(axis=0))
    assert Regression(("x", "constant"), (1.0, 1.0)).measure(mean, labels)["r2"] == 0


def test_metrics_without_names_have_the_same():
    first, second = (Own(LOGIT, metrics=[keras.metrics.Recall()]).metric_names for _ in range(2))
    assert first == second == ("accuracy", "recall")


def test_metric_of_several_numbers_refused():
    refusal = Own(LABELS, metrics=[keras.metrics.F1Score()]).wrong_metrics(tf.constant(NUMBERS), tf.constant(TRUTHS))
    assert refusal.startswith("metric f1_score gives 3 numbers and not one")


def test_losses_and_names_that_are_refused():
    with pytest.raises(UserError, match="two metrics are called accuracy"):
        Own(TASK, metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")])
    weighted = keras.metrics.SparseTopKCategoricalAccuracy(name="top")
    with pytest.raises(UserError, match="cannot be ranked by top, but by accuracy, auc, loss"):
        Own(TASK, weighted_metrics=[weighted], ranked_by="top")
    reduced = Own(Regression(("a",), (1.0,)), loss=keras.losses.Huber())
    with pytest.raises(UserError, match="reduction='none' does"):
        reduced.losses(tf.zeros([4, 1]), tf.zeros([4, 1]))
