"""Compares a candidate with thresholds, and with other answers to the same records.

beat(CHAMPION, "the champion", ours, theirs, labels, task, confidence=0.95, margin=0.0).passed
"""

import math
from statistics import NormalDist

import numpy as np

from components.evaluate.gate import Comparison
from trainer.tasks.task import Task

_POWER, _STEP = 0.8, 0.005
# Fewer swaps where there are many answers, for the time that they take.
_FEWEST_SWAPS, _MOST_ANSWERS = 199, 25_000_000
# Two figures that differ by no more than this share of their size may be equal: a metric may be computed in float32.
_ROUNDING = 1e-6


def reach(
    who: str, metric: str, value: float, threshold: float, task: Task, records: int, *, of: str = ""
) -> Comparison:
    """Compares a metric (of some records: in words `of`) with its threshold, which it passes also if it is equal."""
    passed = bool(value == threshold or task.better(value, threshold, metric))
    words = f"{metric}{of} {value:.4f} {'reaches' if passed else 'misses'} the threshold {threshold:.4f}"
    figures = {"candidate": float(value), "threshold": threshold, "records": records}
    return Comparison(who=who, passed=passed, words=words, metric=metric, **figures)


def beat(
    who: str,
    name: str,
    ours: np.ndarray,
    theirs: np.ndarray,
    labels: np.ndarray,
    task: Task,
    *,
    confidence: float | None,
    margin: float = 0.0,
    swaps: int = 499,
) -> Comparison:
    """Compares the candidate's answers with those of another one, `name` in words, to the same records.

    The candidate passes if it leads by more than the margin, in the unit of the metric that models are ranked by, and by
    more than chance. Without a confidence the margin decides alone. The order of the records makes no difference.
    """
    n = len(labels)
    level = confidence or 0.95
    metrics = task.measure(ours, labels)
    metric = task.ranked_by(metrics)
    mine = float(metrics[metric])
    other = float(task.measure(theirs, labels).get(metric, math.nan))
    lower = metric in task.lower_is_better
    difference = other - mine if lower else mine - other
    right = [answers.argmax(axis=1) == labels for answers in (ours, theirs)] if labels.ndim == 1 else []
    if metric == "accuracy" and [each.mean() for each in right] == [mine, other]:
        won = int((right[0] > right[1]).sum())
        lost = int((right[0] < right[1]).sum())
        p = sign_test(won, lost)
        deviation = math.sqrt(won + lost) / n
    else:
        by_chance = _swapped_leads(task, metric, ours, theirs, labels, swaps)
        # Each swap stands for two, for its reverse has the opposite lead. NaN counts against.
        fewer = np.abs(by_chance) < difference - _ROUNDING * (abs(mine) + abs(other))
        p = float((1 + (~fewer).sum()) / (2 + 2 * len(fewer)))
        deviation = float(by_chance.std())
    if not difference > 0:
        p = 1.0
    leads = difference > margin
    passed = leads and (not confidence or p <= 1 - level)
    words = f"{metric} {mine:.4f} {'beats' if passed else 'does not beat'} {name}, {other:.4f}"
    if passed and confidence:
        words += f" (p {p:.3f})"
    elif leads and confidence:
        words += f", by more than chance (p {p:.3f}; at most {1 - level:.3g} is asked for)"
    elif difference > 0 and not passed:
        words += f", by more than the margin {margin:.4g}"
    # By the normal approximation; an error is looked at in its own unit.
    step = _STEP * (abs(other) if lower else 1)
    reach_of = NormalDist().inv_cdf(level) + NormalDist().inv_cdf(_POWER)
    seen = step > 0 and n * (reach_of * deviation / step) ** 2
    needed = math.ceil(seen) if 0 < seen < math.inf else None
    if needed and not passed:
        what = "half a percent less" if lower else "half a point more"
        words += f"; {what} is seen four times out of five with {needed:,} records, here are {n:,}"
    return Comparison(
        who=who,
        passed=passed,
        words=words,
        metric=metric,
        candidate=mine,
        other=other,
        difference=difference,
        p=p,
        threshold=margin,
        records=n,
        records_needed=needed,
    )


def sign_test(won: int, lost: int) -> float:
    """Returns how likely at least `won` heads are in `won + lost` tosses of a coin.

    Of two equally good models that is how likely one alone is right on so many of the records that just one is right on
    (McNemar 1947, doi:10.1007/BF02295996).
    """
    tosses = won + lost
    heads = np.arange(won, tosses + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, tosses + 1)))])
    return min(1.0, float(np.exp(logs[-1] - logs[heads] - logs[tosses - heads] - tosses * math.log(2)).sum()))


@np.errstate(invalid="ignore")  # of infinite figures
def _swapped_leads(
    task: Task, metric: str, ours: np.ndarray, theirs: np.ndarray, labels: np.ndarray, swaps: int
) -> np.ndarray:
    """Returns leads in a metric after random swaps of two models' answers to the same record: a permutation test's.

    Of AUC their ranks are swapped (Bandos et al. 2005, doi:10.1002/sim.2149), for scores of two models need have no scale
    in common.
    """
    if metric == "auc":
        ours = _ranks(ours)
        theirs = _ranks(theirs)
    # An order that follows from the records, and that no swap changes.
    both = [*np.minimum(ours, theirs).T, *np.maximum(ours, theirs).T]
    order = np.lexsort([*ours.T, *both, *np.reshape(labels, (len(labels), -1)).T])
    ours, theirs, labels = (each[order] for each in (ours, theirs, labels))
    random = np.random.default_rng(0)
    leads = []
    for _ in range(min(swaps, max(_FEWEST_SWAPS, _MOST_ANSWERS // ours.size))):
        swapped = random.random((len(labels), 1)) < 0.5
        pair = np.where(swapped, theirs, ours), np.where(swapped, ours, theirs)
        leads.append(np.subtract(*(task.measure(answers, labels).get(metric, math.nan) for answers in pair)))
    return np.array(leads, float)


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Ranks of scores [N, k] in their column, from 0 to 1; equal scores share theirs."""
    pairs = [(np.sort(column), column) for column in scores.T]
    sums = [np.searchsorted(*pair, "left") + np.searchsorted(*pair, "right") for pair in pairs]
    return (np.stack(sums, axis=1) + 1) / (2 * len(scores) + 2)
