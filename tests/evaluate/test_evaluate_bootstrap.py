import functools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.evaluate.bootstrap import bootstrap, p_value
from trainer.nn.tasks.base import Task
from trainer.nn.tasks.classification import Classification
from trainer.nn.tasks.multi_label import MultiLabel
from trainer.nn.tasks.own import Own
from trainer.nn.tasks.regression import Regression

TWO, FOUR, LABELS = Classification(("no", "yes")), Classification(tuple("abcd")), MultiLabel(("a", "b"))
NUMBERS = Regression(("fare", "tip"), (1.0, 2.0))


def answered(task: Task, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random answers to records, many of them equal, and the labels."""
    draw = np.random.default_rng(seed)
    answers = draw.integers(1, 9, size=(n, task.outputs)) / 9
    if isinstance(task, Classification):
        return answers / answers.sum(axis=1, keepdims=True), draw.integers(task.outputs, size=n)
    return answers, draw.integers(2, size=answers.shape)


@given(st.sampled_from([TWO, FOUR, LABELS, NUMBERS]), st.integers(1, 40), st.integers(0, 2**32))
def test_by_weights_a_metric_is_what_it_is_of_the_records_repeated(task, n, seed):
    answers, labels = answered(task, n, seed)
    drawn = np.random.default_rng(seed).integers(n, size=(5, n))
    weights = np.stack([np.bincount(row, minlength=n) for row in drawn], axis=1).astype(float)
    weighed, whole = task.measure(answers, labels, weights), task.measure(answers, labels)
    assert weighed.keys() == whole.keys()
    for i, row in enumerate(drawn):
        repeated = task.measure(answers[row], labels[row])
        # Of several targets with one that does not vary in the sample the mean is one of fewer, or of none.
        names = whole.keys() - {"r2"} if task is NUMBERS and (labels[row].var(axis=0) == 0).any() else whole
        for name in names:
            assert weighed[name][i] == pytest.approx(repeated.get(name, math.nan), nan_ok=True)


class Mine(Regression):
    """Another metric, without a thought of weights."""

    ranking = ("worst",)

    def measure(self, answers, labels):
        return {**super().measure(answers, labels), "worst": float(np.abs(answers - labels).max())}


@pytest.mark.parametrize("task", [FOUR, Own(FOUR), Mine(("a", "b"), (1.0, 1.0))], ids=["ours", "own", "mine"])
def test_figures_are_the_same_every_time_and_their_spread_that_of_the_theory(task):
    kind = FOUR if task.outputs == 4 else NUMBERS
    answers, labels = answered(kind, 500, seed=1)
    found, again = (bootstrap(task, {"a": answers, "b": answers}, labels) for _ in range(2))
    assert found["a"].metrics == task.measure(answers, labels) and found["a"].records == 500
    for name, values in found["a"].samples.items():
        np.testing.assert_array_equal(values, again["b"].samples[name])
        assert len(values) == (1000 if task is FOUR else 200)
    name = "accuracy" if kind is FOUR else "mae"
    each = answers.argmax(axis=1) == labels if kind is FOUR else np.abs(answers - labels).mean(axis=1)
    error = each.std() / 500**0.5
    low, high = found["a"].intervals()[name]
    assert (low, high) == pytest.approx((each.mean() - 1.96 * error, each.mean() + 1.96 * error), abs=0.5 * error)


def test_where_a_class_may_be_absent_from_a_sample_there_is_no_interval_and_no_lead():
    answers, labels = answered(TWO, 30, seed=2)
    labels[:] = np.arange(30) == 3
    found = bootstrap(TWO, {"a": answers}, labels)["a"]
    assert 0.2 < np.isnan(found.samples["auc"]).mean() < 0.6
    assert found.intervals()["auc"] is None and found.intervals()["accuracy"]
    assert p_value(0.1, np.array([0.1, math.nan, 0.1, 0.1]), 0.0) == pytest.approx(2 / 5)


@functools.cache
def promoted(ours: int, theirs: int, n: int) -> bool:
    """Whether a model wins that alone is right on so many of n records, where the other one alone is on so many."""
    right = np.zeros((2, n), int)
    right[0, ours : ours + theirs] = right[1, :ours] = 1
    found = bootstrap(FOUR, {"a": np.eye(4)[right[0]], "b": np.eye(4)[right[1]]}, np.zeros(n, int))
    lead = found["a"].samples["accuracy"] - found["b"].samples["accuracy"]
    return p_value((ours - theirs) / n, lead, 0.0) <= 0.05


@pytest.mark.parametrize("disagreed", [1, 2, 4, 6])
def test_of_equally_good_models_that_seldom_disagree_at_most_one_in_twenty_is_promoted(disagreed):
    """Exactly: either is right alone on a number of records that is Poisson's, with this mean for both together."""
    chance = [math.exp(-disagreed / 2) * (disagreed / 2) ** k / math.factorial(k) for k in range(11)]
    share = sum(chance[a] * chance[b] for a in range(11) for b in range(a) if promoted(a, b, 346))
    assert share + 1 - sum(chance) ** 2 <= 0.05
    assert promoted(8, 1, 346) and not promoted(3, 0, 346)


def _classes(draw, n, share, shared):
    """Two models that are right on this share of the records, which they find equally hard to some part."""
    hard = np.where(draw.random(n) < shared, draw.random(n), np.nan)
    right = [np.where(np.isnan(hard), draw.random(n), hard) < share for _ in range(2)]
    return FOUR, [np.eye(4)[1 - r.astype(int)] for r in right], np.zeros(n, int)


def _numbers(draw, n, freedom, shared):
    hard = draw.standard_t(freedom, size=(n, 1)) * shared
    return Regression(("a",), (1.0,)), [hard + draw.standard_t(freedom, size=(n, 1)) for _ in range(2)], np.zeros(n)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "trials"), [(346, 1000), (10_000, 150)])
@pytest.mark.parametrize(
    "models",
    [
        *(functools.partial(_classes, share=a, shared=s) for a in (0.5, 0.9, 0.99) for s in (0.0, 0.9)),
        *(functools.partial(_numbers, freedom=f, shared=s) for f, s in ((30, 0.0), (30, 3.0), (3, 1.0))),
    ],
)
def test_without_a_true_difference_at_most_one_in_twenty_is_promoted(models, n, trials):
    draw, wins = np.random.default_rng(7), 0
    for _ in range(trials):
        task, answers, labels = models(draw, n)
        found = bootstrap(task, dict(zip("ab", answers, strict=True)), labels)
        metric = task.ranked_by(found["a"].metrics)
        sign = -1 if metric in task.lower_is_better else 1
        lead = sign * (found["a"].metrics[metric] - found["b"].metrics[metric])
        wins += p_value(lead, sign * (found["a"].samples[metric] - found["b"].samples[metric]), 0.0) <= 0.05
    assert wins <= 0.05 * trials + 2 * (0.05 * 0.95 * trials) ** 0.5
