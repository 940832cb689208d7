"""The contract of `trainer.tasks.task.Task`, over every implementation."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.tasks.of_dataset import Binary, Classification, MultiLabel, Regression

EXAMPLES = 400


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def cross_entropy(logits, labels):
    return -np.log(np.where(labels == 1, sigmoid(logits), 1 - sigmoid(logits)))


def area(scores, labels):
    return (scores[labels == 1][:, None] > scores[labels == 0]).mean()


def judged(losses, right, auc):
    return {"loss": losses.mean(), "accuracy": right.mean(), "auc": auc}


def missed(error, loss):
    return {
        "loss": loss,
        "mae": np.abs(error).mean(),
        "mse": (error**2).mean(),
        "rmse": (error**2).mean() ** 0.5,
    }


DRAW, ABC = np.random.default_rng(1), ("a", "b", "c")
NUMBERS = DRAW.normal(size=(EXAMPLES, 3)).astype(np.float32)
TRUTHS = (NUMBERS + DRAW.normal(size=(EXAMPLES, 3)) > 0).astype(np.int64)
REALS = (NUMBERS * 2 + DRAW.normal(size=(EXAMPLES, 3))).astype(np.float32)
ONE, FIRST, YES, ERROR = NUMBERS[:, 0], NUMBERS[:, :1], TRUTHS[:, 0], NUMBERS - REALS
TWO = (NUMBERS[:, :2] + np.eye(2)[YES]).astype(np.float32)
SHARES = np.exp(TWO) / np.exp(TWO).sum(axis=1, keepdims=True)
SURE, AREAS = (
    -np.log(SHARES[np.arange(EXAMPLES), YES]),
    [area(NUMBERS[:, i], TRUTHS[:, i]) for i in range(3)],
)
HUBER = np.where(np.abs(ERROR) <= 1, ERROR**2 / 2, np.abs(ERROR) - 0.5)[:, 0].mean()
MAPE = {"mape": np.abs(ERROR[:, 0] / REALS[:, 0]).mean() * 100}
CLASSES, LOGIT, LABELS = Classification(("no", "yes")), Binary(("no", "yes")), MultiLabel(ABC)
BITS = cross_entropy(NUMBERS, TRUTHS)
NUMBER, SEVERAL = Regression(("a",), (2.0,)), Regression(ABC, (1.0, 2.0, 4.0))
OWN = Regression(
    ("a",),
    (1.0,),
    loss=lambda labels, outputs: keras.losses.Huber(reduction="none")(labels[:, None], outputs),
    metrics=[keras.metrics.MeanAbsolutePercentageError(name="mape")],
    rank_by="mape",
    lower_is_better={"mape"},
)
CASES = {  # the task, outputs, labels, and the expected score
    "classes": (
        CLASSES,
        TWO,
        YES,
        judged(SURE, SHARES.argmax(axis=1) == YES, area(SHARES[:, 1], YES)),
    ),
    "binary": (LOGIT, FIRST, YES, judged(BITS[:, 0], (ONE > 0) == YES, AREAS[0])),
    "several labels": (
        LABELS,
        NUMBERS,
        TRUTHS,
        judged(BITS, (NUMBERS > 0) == TRUTHS, np.mean(AREAS)),
    ),
    "a number": (NUMBER, FIRST, REALS[:, 0], missed(ERROR[:, 0], (ERROR[:, 0] ** 2).mean() / 4)),
    "several numbers": (SEVERAL, NUMBERS, REALS, missed(ERROR, (ERROR**2 / [1, 4, 16]).mean())),
    "own": (OWN, FIRST, REALS[:, 0], missed(ERROR[:, 0], HUBER) | MAPE),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def test_task_scores_by_definition(case):
    """Sums over batches make the score of all examples."""
    task, outputs, labels, expected = case
    batches = [(labels[i : i + 150], outputs[i : i + 150]) for i in range(0, EXAMPLES, 150)]
    loss = 0.0
    for batch in batches:
        weights = tf.fill([len(batch[0])], 1 / EXAMPLES)
        loss += float(task.loss_sum(*map(tf.constant, batch), weights)[0])
    states_of = tf.function(lambda *batch: tf.concat(task.states(*batch), 0), reduce_retracing=True)
    states = sum(states_of(*map(tf.constant, batch)).numpy() for batch in batches)
    assert len(states) == task.num_states
    score = {"loss": loss, **task.results(states)}
    assert score.pop("auc", None) == pytest.approx(expected.get("auc"), abs=1e-3)
    assert score == pytest.approx(
        {name: expected[name] for name in expected.keys() - {"auc"}}, rel=1e-4
    )


def test_task_measures_answers_alike(case):
    task, outputs, labels, expected = case
    answers = {name: value.numpy() for name, value in task.answer(tf.constant(outputs)).items()}
    assert set(task.answers) == answers.keys()
    measured = task.measure(answers[task.answers[0]], labels)
    same = expected.keys() - ({"loss"} if task.loss else ())
    assert {name: measured[name] for name in same} == pytest.approx(
        {name: expected[name] for name in same}, rel=1e-4
    )


def test_task_ranks_by_its_metric(case):
    task, _, _, score = case
    ranked_by = task.ranked_by(score)
    worse = score[ranked_by] + (0.1 if ranked_by in task.lower_is_better else -0.1)
    assert task.rank(score) > task.rank({**score, ranked_by: worse})
