import fractions
import functools
import itertools
import math

import keras
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from components.evaluate.comparing import beat, reach
from components.evaluate.eval_set import EvalSet
from components.evaluate.gate import CHAMPION
from components.evaluate.score import Answers
from trainer.tasks.of_dataset import Classification, MultiLabel, Regression
from trainer.tasks.task import Task

TWO, FOUR, LABELS = Classification(("no", "yes")), Classification(tuple("abcd")), MultiLabel(("a", "b"))
NUMBER, NUMBERS = Regression(("fare",), (1.0,)), Regression(("fare", "tip"), (1.0, 2.0))


class Odd(Regression):
    """Another metric, which a task may have; and none of some answers."""

    ranking = ("worst",)

    def measure(self, answers, labels):
        worst = float(np.abs(answers - labels).max())
        return {**super().measure(answers, labels), **({"worst": worst} if worst < 0.8 else {})}


TASKS = [
    TWO,
    FOUR,
    LABELS,
    NUMBERS,
    Classification(("no", "yes"), metrics=[keras.metrics.SparseTopKCategoricalAccuracy(1)]),
    Odd(("a", "b"), (1.0, 1.0)),
]


def answered(task: Task, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random answers of two models to records, many of them equal, and the labels."""
    draw = np.random.default_rng(seed)
    answers = draw.integers(1, 9, size=(2, n, task.outputs)) / 9
    if "class_name" in task.answers:
        return *(answers / answers.sum(axis=2, keepdims=True)), draw.integers(task.outputs, size=n)
    return *answers, draw.integers(2, size=(n, task.outputs))


def compared(ours, theirs, labels=None, *, task=FOUR, confidence=0.95, margin=0.0, swaps=499):
    labels = np.zeros(len(ours), int) if labels is None else labels
    records = EvalSet(manifest=None, data_dir="", split="test", task=task)
    answers = Answers(records=records, positions=np.arange(len(labels)), answers=ours, labels=labels)
    return beat(CHAMPION, "the champion", answers, theirs, confidence=confidence, margin=margin, swaps=swaps)


def hits(count: int, of: int = 400) -> np.ndarray:
    """Answers of a model that takes the right class, 0, for the first `count` of so many records."""
    return np.eye(4)[np.where(np.arange(of) < count, 0, 1)] * 0.8 + 0.1


@pytest.mark.parametrize(
    ("value", "threshold", "task", "metric", "passed"),
    [
        (0.8, 0.8, FOUR, "accuracy", True),  # reaching is enough
        (0.7999, 0.8, FOUR, "accuracy", False),
        (0.5, 0.4, NUMBER, "rmse", False),  # of an error less is better
        (math.nan, 0.0, FOUR, "accuracy", False),
        (0.9, math.nan, FOUR, "accuracy", False),
    ],
)
def test_threshold_reached_or_missed(value, threshold, task, metric, passed):
    found = reach("threshold", metric, value, threshold, task, 9)
    assert (found.passed, found.threshold, found.records) == (passed, threshold, 9)
    assert f"{metric} {value:.4f} {'reaches' if passed else 'misses'} the threshold {threshold:.4f}" == found.words


@given(st.integers(1, 60), st.integers(0, 60))
def test_accuracy_p_is_binomial_tail(won, lost):
    """The p-value is exact: how likely so many heads are."""
    tosses = np.arange(won + lost + 9)
    right = tosses < won, (tosses >= won) & (tosses < won + lost)
    p = compared(*(np.eye(4)[1 - each.astype(int)] for each in right)).p
    tail = sum(math.comb(won + lost, heads) for heads in range(won, won + lost + 1))
    assert p == pytest.approx(float(fractions.Fraction(tail, 2 ** (won + lost))) if won > lost else 1.0)


@pytest.mark.parametrize("n", [3, 8])
def test_few_records_have_exact_p(n):
    """All swaps are counted where there are few, not some of them at random."""
    ours, labels = np.zeros((n, 1)), np.zeros(n)
    assert compared(ours, ours + 0.1 * (1 + np.arange(n)[:, np.newaxis]), labels, task=NUMBER).p == 0.5**n
    assert compared(hits(n, n), hits(0, n)).p == 0.5**n


def test_few_disagreements_of_numbers():
    """With three different answers, a quarter of the swaps moves none or all of these."""
    ours, labels = np.zeros((200, 1)), np.zeros(200)
    theirs = ours + (np.arange(200) < 3)[:, np.newaxis] * 0.1
    assert compared(ours, theirs, labels, task=NUMBER).p == pytest.approx(1 / 8, abs=0.03)


@given(st.sampled_from(TASKS), st.integers(2, 40), st.integers(0, 2**32))
@example(TASKS[-1], 38, 21825)  # Equal but for the order in which squares are added.
def test_record_order_irrelevant(task, n, seed):
    """Another order of the records changes neither the p-value nor the verdict."""
    drawn = answered(task, n, seed)
    order = np.random.default_rng(seed + 1).permutation(n)
    one, other = (compared(*arrays, task=task, swaps=19) for arrays in (drawn, [each[order] for each in drawn]))
    assert (one.p, one.passed) == (other.p, other.passed) and one.metric == other.metric


@given(st.sampled_from([TWO, LABELS]), st.integers(10, 40), st.integers(0, 2**32))
def test_auc_scale_irrelevant(task, n, seed):
    """Scores that are a growing function of others are as good, whatever the other model's scores."""
    ours, theirs, labels = answered(task, n, seed)
    one, other = (compared(each, theirs, labels, task=task, swaps=19) for each in (ours, 0.001 * ours**3))
    assume(one.metric == "auc")  # there are records of both classes
    assert (one.p, one.passed) == (other.p, other.passed)


def test_one_record_is_chance():
    one, many = compared(hits(391), hits(390)), compared(hits(390), hits(370))
    assert not one.passed and one.p == 0.5 and one.difference == pytest.approx(1 / 400)
    assert one.words.startswith("accuracy 0.9775 does not beat the champion, 0.9750, by more than chance (p 0.500; ")
    assert many.passed is True and many.p == pytest.approx(2**-20) and many.records == 400
    assert many.words == "accuracy 0.9750 beats the champion, 0.9250 (p 0.000)"
    assert compared(hits(391), hits(390), confidence=None).passed  # who asks for no certainty gets none


def test_lead_exceeds_margin():
    assert compared(hits(390), hits(370), margin=0.04).passed
    short = compared(hits(390), hits(370), margin=0.06, confidence=None)
    assert not short.passed and "does not beat the champion, 0.9250, by more than the margin 0.06" in short.words


@pytest.mark.parametrize("confidence", [0.95, 0.5, None])
def test_equal_or_nan_never_wins(confidence):
    equal = compared(hits(200), hits(200), confidence=confidence)
    assert (equal.passed, equal.p, equal.difference) == (False, 1.0, 0.0)
    labels, answers = np.arange(40.0), np.arange(40.0)[:, np.newaxis]
    for ours, theirs in itertools.permutations((answers, np.full((40, 1), math.nan)), 2):
        found = compared(ours, theirs, labels, task=NUMBER, confidence=confidence)
        assert not found.passed and found.p == 1.0


def test_error_less_is_better():
    random = np.random.default_rng(0)
    labels = random.normal(size=500)
    close, far = ((labels + random.normal(size=500) * scale)[:, np.newaxis] for scale in (1.0, 1.3))
    better, worse = (compared(*pair, labels, task=NUMBER) for pair in ((close, far), (far, close)))
    assert better.metric == "rmse" and better.passed and not worse.passed and worse.p == 1.0
    assert better.difference == pytest.approx(-worse.difference)


def _classes(draw, n, share, shared):
    """Two models that are right on this share of the records, which they find equally hard to some part."""
    hard = np.where(draw.random(n) < shared, draw.random(n), np.nan)
    right = [np.where(np.isnan(hard), draw.random(n), hard) < share for _ in range(2)]
    return FOUR, *(np.eye(4)[1 - r.astype(int)] for r in right), np.zeros(n, int)


def _scores(draw, n, share, shared):
    """Two models with scores of another scale each, and so large a share of the records in a class."""
    labels = (np.arange(n) < max(1, n * share)).astype(int)
    hard = labels + shared * draw.normal(size=n)
    ours, theirs = ((hard + draw.normal(size=n)) * scale for scale in (1, 9))
    return TWO, *(np.stack([-each, each], axis=1).clip(1e-9) for each in (np.exp(ours), np.exp(theirs))), labels


def _numbers(draw, n, freedom, shared):
    hard = draw.standard_t(freedom, size=(n, 1)) * shared
    return NUMBER, *(hard + draw.standard_t(freedom, size=(n, 1)) for _ in range(2)), np.zeros(n)


EQUALLY_GOOD = {
    "half": functools.partial(_classes, share=0.5, shared=0.0),
    "good": functools.partial(_classes, share=0.9, shared=0.9),
    "scores": functools.partial(_scores, share=0.3, shared=1.0),
    "rare": functools.partial(_scores, share=0.05, shared=0.0),
    "numbers": functools.partial(_numbers, freedom=30, shared=3.0),
    "outliers": functools.partial(_numbers, freedom=3, shared=1.0),
}


MANY = pytest.param(1500, 99, marks=pytest.mark.slow)
LONG = ("scores", "rare")  # AUC takes a quarter of a minute a case
MODELS = [
    pytest.param(models, id=name, marks=[pytest.mark.cluster] if name in LONG else [])
    for name, models in EQUALLY_GOOD.items()
]


@pytest.mark.parametrize(("trials", "swaps"), [(100, 39), MANY])
@pytest.mark.parametrize("n", [50, 100, 200, 500, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("models", MODELS)
def test_type_one_error(models, n, trials, swaps):
    """Equally good models beat each other in one of twenty trials at most, but for chance in so many trials."""
    draw = np.random.default_rng(7)
    wins = 0
    for _ in range(trials):
        task, *arrays = models(draw, n)
        wins += compared(*arrays, task=task, swaps=swaps).passed
    assert wins <= 0.05 * trials + 2 * (0.05 * 0.95 * trials) ** 0.5
