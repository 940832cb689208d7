"""The contract of `trainer.tasks.task.Task`, over every implementation."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics

from trainer.tasks.of_dataset import Binary, Classification, MultiLabel, Regression

EXAMPLES = 400


def classified(truths, logits):
    """Returns the means over labels 0 and 1, [N, k], of what scikit-learn measures of each."""
    shares = 1 / (1 + np.exp(-logits))
    pairs = [*zip(truths.T, shares.T, strict=True)]
    return {
        "loss": np.mean([metrics.log_loss(*pair) for pair in pairs]),
        "accuracy": (truths == (shares > 0.5)).mean(),
        "auc": np.mean([metrics.roc_auc_score(*pair) for pair in pairs]),
    }


def missed(labels, outputs, spreads):
    mse = metrics.mean_squared_error(labels, outputs)
    return {
        "loss": metrics.mean_squared_error(labels / spreads, outputs / spreads),
        "mae": metrics.mean_absolute_error(labels, outputs),
        "mse": mse,
        "rmse": mse**0.5,
    }


DRAW, ABC = np.random.default_rng(1), ("a", "b", "c")
NUMBERS = DRAW.normal(size=(EXAMPLES, 3)).astype(np.float32)
TRUTHS = (NUMBERS + DRAW.normal(size=(EXAMPLES, 3)) > 0).astype(np.int64)
REALS = (NUMBERS * 2 + DRAW.normal(size=(EXAMPLES, 3))).astype(np.float32)
FIRST, YES, REAL = NUMBERS[:, :1], TRUTHS[:, 0], REALS[:, 0]
TWO = (NUMBERS[:, :2] + np.eye(2)[YES]).astype(np.float32)
OWN = Regression(
    ("a",),
    (1.0,),
    loss=lambda labels, outputs: keras.losses.Huber(reduction="none")(labels[:, None], outputs),
    metrics=[keras.metrics.MeanAbsolutePercentageError(name="mape")],
    rank_by="mape",
    lower_is_better={"mape"},
)
HUBER = {"loss": float(keras.losses.Huber()(REALS[:, :1], FIRST))}
MAPE = {"mape": 100 * metrics.mean_absolute_percentage_error(REAL, FIRST)}
CASES = {  # the task, outputs, labels, and the expected score
    "classes": (
        Classification(("no", "yes")),
        TWO,
        YES,
        classified(YES[:, None], TWO[:, 1:] - TWO[:, :1]),
    ),
    "binary": (Binary(("no", "yes")), FIRST, YES, classified(YES[:, None], FIRST)),
    "several labels": (MultiLabel(ABC), NUMBERS, TRUTHS, classified(TRUTHS, NUMBERS)),
    "several numbers": (
        Regression(ABC, (1.0, 2.0, 4.0)),
        NUMBERS,
        REALS,
        missed(REALS, NUMBERS, [1, 2, 4]),
    ),
    "own": (OWN, FIRST, REAL, missed(REALS[:, :1], FIRST, 1) | HUBER | MAPE),
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
    # During training the area is one of 200 thresholds.
    assert score == pytest.approx(expected, rel=2e-3)


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
