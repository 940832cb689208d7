import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from components.evaluate.comparing import beat, reach
from components.evaluate.eval_set import EvalSet
from components.evaluate.gate import CHAMPION
from components.evaluate.score import Answers
from trainer.tasks.of_dataset import Classification, MultiLabel, Regression

TWO, FOUR = Classification(("no", "yes")), Classification(tuple("abcd"))
LABELS = MultiLabel(("a", "b"))
NUMBER, NUMBERS = Regression(("fare",), (1.0,)), Regression(("fare", "tip"), (1.0, 2.0))


class Worst(Regression):
    """Ranks by the largest error, which it defines for small ones alone."""

    ranking = ("worst",)

    def measure(self, answers, labels):
        worst = float(np.abs(answers - labels).max())
        return super().measure(answers, labels) | ({"worst": worst} if worst < 0.8 else {})


TASKS = [TWO, FOUR, LABELS, NUMBERS, Worst(("a", "b"), (1.0, 1.0))]


def answered(task, n, seed):
    """Returns random answers of two models to records, many of them equal, and the labels."""
    draw = np.random.default_rng(seed)
    answers = draw.integers(1, 9, size=(2, n, task.outputs)) / 9
    if "class_name" in task.answers:
        return *(answers / answers.sum(axis=2, keepdims=True)), draw.integers(task.outputs, size=n)
    return *answers, draw.integers(2, size=(n, task.outputs))


def compared(ours, theirs, labels=None, *, task=FOUR, confidence=0.95, margin=0.0, swaps=499):
    labels = np.zeros(len(ours), int) if labels is None else labels
    records = EvalSet(manifest=None, data_dir="", split="test", task=task)
    answers = Answers(
        records=records, positions=np.arange(len(labels)), answers=ours, labels=labels
    )
    return beat(
        CHAMPION, "the champion", answers, theirs, confidence=confidence, margin=margin, swaps=swaps
    )


def right(mask):
    """Returns answers of a model that takes the right class, 0, for these records."""
    return np.eye(4)[np.where(mask, 0, 1)]


def hits(count):
    return right(np.arange(400) < count)


@pytest.mark.parametrize(
    ("value", "threshold", "task", "metric", "passed"),
    [
        (0.8, 0.8, FOUR, "accuracy", True),
        (0.5, 0.4, NUMBER, "rmse", False),
        (math.nan, 0.0, FOUR, "accuracy", False),
    ],
)
def test_threshold_reached_or_missed(value, threshold, task, metric, passed):
    assert reach("threshold", metric, value, threshold, task, 9).passed == passed


@given(st.integers(1, 60), st.integers(0, 60))
def test_accuracy_p_is_binomial_tail(won, lost):
    """The p-value is the probability of at least so many heads in tosses of a coin."""
    n = won + lost
    tosses = np.arange(n + 9)
    p = compared(right(tosses < won), right((tosses >= won) & (tosses < n))).p
    tail = sum(math.comb(n, heads) for heads in range(won, n + 1))
    assert p == pytest.approx(tail / 2**n if won > lost else 1.0)


def test_permutation_p_counts_swaps():
    """All swaps of few records count; of many, a quarter moves all or none of three answers."""
    theirs = 0.1 * np.arange(1, 9).reshape(8, 1)
    assert compared(np.zeros((8, 1)), theirs, np.zeros(8), task=NUMBER).p == 0.5**8
    theirs = 0.1 * (np.arange(200) < 3).reshape(200, 1)
    p = compared(np.zeros((200, 1)), theirs, np.zeros(200), task=NUMBER).p
    assert p == pytest.approx(1 / 8, abs=0.03)
    # No random swap leads by as much, and the lead itself counts as one of 499 + 1, twice.
    p = compared(np.zeros((200, 1)), np.ones((200, 1)), np.zeros(200), task=NUMBER).p
    assert p == 1 / 1000


@given(st.sampled_from(TASKS), st.integers(2, 40), st.integers(0, 2**32))
@example(TASKS[-1], 38, 21825)  # Equal but for the order in which squares are added.
def test_record_order_irrelevant(task, n, seed):
    """Another order of the records changes neither the p-value nor the verdict."""
    arrays = answered(task, n, seed)
    order = np.random.default_rng(seed + 1).permutation(n)
    one = compared(*arrays, task=task, swaps=19)
    other = compared(*(array[order] for array in arrays), task=task, swaps=19)
    assert (one.p, one.passed, one.metric) == (other.p, other.passed, other.metric)


@given(st.sampled_from([TWO, LABELS]), st.integers(10, 40), st.integers(0, 2**32))
def test_auc_scale_irrelevant(task, n, seed):
    """Scores that are a growing function of others are as good, whatever the other scores."""
    ours, theirs, labels = answered(task, n, seed)
    one = compared(ours, theirs, labels, task=task, swaps=19)
    other = compared(0.001 * ours**3, theirs, labels, task=task, swaps=19)
    assume(one.metric == "auc")  # Records of one class have none.
    assert (one.p, one.passed) == (other.p, other.passed)


@pytest.mark.parametrize(
    ("ours", "theirs", "options", "end"),
    [
        (391, 390, {}, ", 0.9750, by more than chance (p 0.500; at most 0.05 is asked for)"),
        (391, 390, {"confidence": None}, ""),
        (390, 370, {"margin": 0.04}, ", 0.9250 (p 0.000)"),
        (390, 370, {"margin": 0.06}, ", 0.9250, by more than the margin 0.06"),
    ],
)
def test_lead_exceeds_chance_and_margin(ours, theirs, options, end):
    comparison = compared(hits(ours), hits(theirs), **options)
    assert comparison.passed == ("by more than" not in end)
    assert comparison.words.endswith(end)


@pytest.mark.parametrize("confidence", [0.5, None])
@pytest.mark.parametrize(("ours", "theirs"), [(1, 1), (1, math.nan), (math.nan, 1)])
def test_equal_or_nan_never_wins(ours, theirs, confidence):
    pair = (np.full((40, 1), value) for value in (ours, theirs))
    comparison = compared(*pair, np.zeros(40), task=NUMBER, confidence=confidence)
    assert not comparison.passed and comparison.p == 1.0


def scores(draw, n, positive, shared):
    """Returns scores of two models on different scales, and labels with this positive share."""
    labels = (np.arange(n) < n * positive).astype(int)
    hard = labels + shared * draw.normal(size=n)
    odds = (np.exp((hard + draw.normal(size=n)) * scale) for scale in (1, 9))
    return *(np.stack([-each, each], axis=1).clip(1e-9) for each in odds), labels


def numbers(draw, n, freedom, shared):
    """Returns two models with errors of Student's distribution, and the labels."""
    hard, *own = (draw.standard_t(freedom, size=(n, 1)) for _ in range(3))
    return *(shared * hard + each for each in own), np.zeros(n)


@pytest.mark.parametrize(
    ("trials", "swaps"), [(100, 39), pytest.param(1500, 99, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("n", [50, 500, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("models", "shape", "shared", "task"),
    [
        pytest.param(
            scores, 0.3, 1.0, TWO, marks=pytest.mark.cluster
        ),  # AUC takes a quarter of a minute.
        pytest.param(scores, 0.05, 0.0, TWO, marks=pytest.mark.cluster),
        (numbers, 30, 3.0, NUMBER),
        (numbers, 3, 1.0, NUMBER),
    ],
)
def test_type_one_error(models, shape, shared, task, n, trials, swaps):
    """Equally good models beat each other in one of twenty trials at most, beyond chance."""
    draw = np.random.default_rng(7)
    wins = sum(
        compared(*models(draw, n, shape, shared), task=task, swaps=swaps).passed
        for _ in range(trials)
    )
    # Three standard deviations, as one of all these cases exceeds two in a third of all seeds.
    assert wins <= 0.05 * trials + 3 * (0.05 * 0.95 * trials) ** 0.5
