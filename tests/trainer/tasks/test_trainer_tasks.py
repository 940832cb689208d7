"""What is computed of a model's outputs, against the definitions."""

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


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return -np.log(np.where(labels == 1, sigmoid(logits), 1 - sigmoid(logits)))


def area(scores: np.ndarray, labels: np.ndarray) -> float:
    return (scores[labels == 1][:, None] > scores[labels == 0]).mean()


def judged(losses: np.ndarray, right: np.ndarray, auc: float) -> dict[str, float]:
    return {"loss": losses.mean(), "accuracy": right.mean(), "auc": auc}


def missed(error: np.ndarray, loss: float) -> dict[str, float]:
    return {"loss": loss, "mae": np.abs(error).mean(), "mse": (error**2).mean(), "rmse": (error**2).mean() ** 0.5}


DRAW, ABC = np.random.default_rng(1), ("a", "b", "c")
NUMBERS = DRAW.normal(size=(EXAMPLES, 3)).astype(np.float32)
TRUTHS = (NUMBERS + DRAW.normal(size=(EXAMPLES, 3)) > 0).astype(np.int64)
REALS = (NUMBERS * 2 + DRAW.normal(size=(EXAMPLES, 3))).astype(np.float32)
ONE, FIRST, YES, ERROR = NUMBERS[:, 0], NUMBERS[:, :1], TRUTHS[:, 0], NUMBERS - REALS
TWO = (NUMBERS[:, :2] + np.eye(2)[YES]).astype(np.float32)
SHARES = np.exp(TWO) / np.exp(TWO).sum(axis=1, keepdims=True)
SURE, AREAS = -np.log(SHARES[np.arange(EXAMPLES), YES]), [area(NUMBERS[:, i], TRUTHS[:, i]) for i in range(3)]
HUBER = np.where(np.abs(ERROR) <= 1, ERROR**2 / 2, np.abs(ERROR) - 0.5)[:, 0].mean()
MAPE = {"mape": np.abs(ERROR[:, 0] / REALS[:, 0]).mean() * 100}
LOGIT, LABELS, BITS = Binary(("no", "yes")), MultiLabel(ABC), cross_entropy(NUMBERS, TRUTHS)
NUMBER, SEVERAL = Regression(("a",), (2.0,)), Regression(ABC, (1.0, 2.0, 4.0))
OWN = Own(
    Regression(("a",), (1.0,)),
    loss=lambda labels, outputs: keras.losses.Huber(reduction="none")(labels[:, None], outputs),
    metrics=[keras.metrics.MeanAbsolutePercentageError(name="mape")],
    ranked_by="mape",
)
CASES = {  # the task, outputs, labels, and what is to be found
    "classes": (TASK, TWO, YES, judged(SURE, SHARES.argmax(axis=1) == YES, area(SHARES[:, 1], YES))),
    "binary": (LOGIT, FIRST, YES, judged(BITS[:, 0], (ONE > 0) == YES, AREAS[0])),
    "several labels": (LABELS, NUMBERS, TRUTHS, judged(BITS, (NUMBERS > 0) == TRUTHS, np.mean(AREAS))),
    "a number": (NUMBER, FIRST, REALS[:, 0], missed(ERROR[:, 0], (ERROR[:, 0] ** 2).mean() / 4)),
    "several numbers": (SEVERAL, NUMBERS, REALS, missed(ERROR, (ERROR**2 / [1, 4, 16]).mean())),
    "own": (OWN, FIRST, REALS[:, 0], missed(ERROR[:, 0], HUBER) | MAPE),
}


@pytest.mark.parametrize("name", CASES)
def test_each_task_scores_by_definition_in_any_batches_and_measures_the_same_of_what_a_client_gets(name):
    task, outputs, labels, expected = CASES[name]
    batches = [(outputs[i : i + 150], labels[i : i + 150]) for i in range(0, EXAMPLES, 150)]
    loss = sum(float(tf.reduce_sum(task.losses(*map(tf.constant, batch)))) for batch in batches) / EXAMPLES
    states = sum(tf.concat(task.states(*map(tf.constant, batch)), 0).numpy() for batch in batches)
    score = task.score(loss, states, [np.asarray(part) for part in task.evidence(outputs, labels)])
    assert score == pytest.approx(expected, rel=1e-4)
    answers = {name: value.numpy() for name, value in task.answer(tf.constant(outputs)).items()}
    assert set(task.answers) == answers.keys()
    measured = task.measure(answers[task.answers[0]], labels)
    same = expected.keys() - ({"loss"} if name == "own" else ())
    assert {name: measured[name] for name in same} == pytest.approx({name: expected[name] for name in same}, rel=1e-4)
    ranked_by = task.ranked_by(score)
    worse = score[ranked_by] + (0.1 if ranked_by in task.lower_is_better else -0.1)
    assert task.rank(score) > task.rank({**score, ranked_by: worse})


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
