"""Compares a candidate with thresholds, and with other answers to the same records.

beat(CHAMPION, "the champion", ours, theirs.answers, confidence=0.95, margin=0.0).passed
"""

import functools
import math
from collections.abc import Iterator, Mapping
from statistics import NormalDist

import numpy as np
from scipy import stats

from common.errors import UserError
from components.evaluate.gate import Comparison, Gate
from components.evaluate.score import Answers
from components.evaluate.slices import slices
from trainer.tasks.task import Task

_MOST_VALUES = 100
_POWER, _STEP = 0.8, 0.005
# Fewer swaps where there are many answers, for the time that they take.
_FEWEST_SWAPS, _MOST_ANSWERS = 199, 25_000_000
# Two figures that differ by no more than this share of their size may be equal: a metric may be computed in float32.
_ROUNDING = 1e-6


def gate_comparisons(gate: Gate, answered: Answers, metrics: Mapping[str, float]) -> Iterator[Comparison]:
    """Yields the comparisons with the gate's thresholds, of the whole split and of its slices.

    A slice is judged by itself if it has enough records, and defines the metric.

    Raises:
      UserError: The gate names a metric or a column that there is not, or one with too many values.
    """
    records = answered.records
    thresholds = (gate.thresholds, *gate.slices.values())
    if missing := {metric for each in thresholds for metric in each} - metrics.keys():
        raise UserError(
            f"a threshold of {min(missing)}: split {records.split!r} of dataset {records.manifest.name!r} gives no such "
            f"metric; it has {', '.join(metrics)}"
        )
    for metric, threshold in gate.thresholds.items():
        yield reach("threshold", metric, metrics[metric], threshold, records.task, len(answered.labels))
    for column, minima in gate.slices.items():
        values = answered.column(column)
        if (count := len(np.unique(values))) > _MOST_VALUES:
            raise UserError(f"slices.{column}: {count:,} different values; {_MOST_VALUES} can be looked at one by one")
        for row in slices(answered, values, _MOST_VALUES):
            count, own = row["records"], row["metrics"]
            of = f" of {column} {row['value']} ({count:,} records)"
            for metric, threshold in minima.items():
                if count >= gate.slice_records and metric in own:
                    yield reach("slice", metric, own[metric], threshold, records.task, count, of=of)
                else:
                    why = f"it takes {gate.slice_records}" if metric in own else "they do not define it"
                    words = f"{metric}{of} is not judged: {why}"
                    yield Comparison(who="slice", passed=True, words=words, metric=metric, records=count)


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
    ours: Answers,
    theirs: np.ndarray,
    *,
    confidence: float | None,
    margin: float = 0.0,
    swaps: int = 499,
) -> Comparison:
    """Compares the candidate's answers with those of another one, `name` in words, to the same records, [N, outputs].

    The candidate passes if it leads by more than the margin, in the unit of the metric that models are ranked by, and by
    more than chance. Without a confidence the margin decides alone. The order of the records makes no difference.
    """
    task = ours.records.task
    labels = ours.labels
    n = len(labels)
    level = confidence or 0.95
    metrics = ours.measure()
    metric = task.ranked_by(metrics)
    candidate = float(metrics[metric])
    other = float(task.measure(theirs, labels).get(metric, math.nan))
    lower = metric in task.lower_is_better
    difference = other - candidate if lower else candidate - other
    right = [answers.argmax(axis=1) == labels for answers in (ours.answers, theirs)] if labels.ndim == 1 else []
    if metric == "accuracy" and [each.mean() for each in right] == [candidate, other]:
        # McNemar's exact test (1947, doi:10.1007/BF02295996): of the records that one model alone has right.
        won = int((right[0] > right[1]).sum())
        disagreements = int((right[0] != right[1]).sum())
        p = stats.binomtest(won, disagreements, alternative="greater").pvalue if won else 1.0
        deviation = math.sqrt(disagreements) / n
    else:
        tolerance = _ROUNDING * (abs(candidate) + abs(other))
        p, deviation = _permutation_test(difference - tolerance, metric, ours, theirs, swaps)
    if not difference > 0:
        p = 1.0
    leads = difference > margin
    passed = leads and (not confidence or bool(p <= 1 - level))
    words = f"{metric} {candidate:.4f} {'beats' if passed else 'does not beat'} {name}, {other:.4f}"
    if passed and confidence:
        words += f" (p {p:.3f})"
    elif leads and confidence:
        words += f", by more than chance (p {p:.3f}; at most {1 - level:.3g} is asked for)"
    elif difference > 0 and not passed:
        words += f", by more than the margin {margin:.4g}"
    # By the normal approximation; an error is looked at in its own unit.
    step = _STEP * (abs(other) if lower else 1)
    quantiles = NormalDist().inv_cdf(level) + NormalDist().inv_cdf(_POWER)
    estimate = step > 0 and n * (quantiles * deviation / step) ** 2
    needed = math.ceil(estimate) if 0 < estimate < math.inf else None
    if needed and not passed:
        what = "half a percent less" if lower else "half a point more"
        words += f"; {what} is seen four times out of five with {needed:,} records, here are {n:,}"
    return Comparison(
        who=who,
        passed=passed,
        words=words,
        metric=metric,
        candidate=candidate,
        other=other,
        difference=difference,
        p=float(p),
        threshold=margin,
        records=n,
        records_needed=needed,
    )


@np.errstate(invalid="ignore")  # of infinite figures
def _permutation_test(
    lead: float, metric: str, answered: Answers, theirs: np.ndarray, swaps: int
) -> tuple[float, float]:
    """Returns the p-value of a lead, and the standard deviation of leads by chance, over swaps of two models' answers.

    All swaps where these are no more than `swaps`; else so many at random. For AUC the ranks are swapped (Bandos et al.
    2005, doi:10.1002/sim.2149), since scores of two models need have no scale in common.
    """
    ours = answered.answers
    labels = answered.labels
    n = len(labels)
    if n < 2:
        return 1.0, 0.0
    if metric == "auc":
        ours, theirs = (stats.rankdata(scores, axis=0) / (n + 1) for scores in (ours, theirs))
    # An order that follows from the records, and that no swap changes.
    both = [*np.minimum(ours, theirs).T, *np.maximum(ours, theirs).T]
    order = np.lexsort([*ours.T, *both, *np.reshape(labels, (n, -1)).T])
    ours, theirs, labels = (array[order] for array in (ours, theirs, labels))

    def lead_of(signs: np.ndarray) -> float:
        kept = signs[:, np.newaxis] > 0
        pair = np.where(kept, ours, theirs), np.where(kept, theirs, ours)
        return np.subtract(*(answered.records.task.measure(answers, labels).get(metric, math.nan) for answers in pair))

    resamples = min(swaps, max(_FEWEST_SWAPS, _MOST_ANSWERS // ours.size))
    signs = np.ones(n)
    options = {"n_resamples": resamples, "vectorized": False, "batch": 1}
    if is_exact := 2**n <= resamples:
        test = stats.permutation_test((signs,), lead_of, permutation_type="samples", **options)
    else:
        random = np.random.default_rng(0)
        test = stats.monte_carlo_test(signs, functools.partial(random.choice, (-1.0, 1.0)), lead_of, **options)
    # Each swap stands for two, for its reverse has the opposite lead. NaN counts against.
    hits = (~(np.abs(test.null_distribution) < lead)).sum()
    unseen = int(not is_exact)  # the lead itself
    p = (hits + unseen) / (2 * len(test.null_distribution) + 2 * unseen)
    return p, float(test.null_distribution.std())
