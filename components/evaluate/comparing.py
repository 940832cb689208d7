"""Compares a candidate with thresholds, and with other answers to the same records.

beat(CHAMPION, "the champion", ours, theirs.answers, confidence=0.95, margin=0.0).passed
"""

import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np
from scipy import stats

from common.errors import UserError, unknown
from components.evaluate.gate import Comparison, Gate
from components.evaluate.score import Answers
from components.evaluate.slices import slices
from trainer.tasks.task import Task

_MOST_VALUES = 100
# Metrics are equal if they differ by no more than this share of their size. Smaller differences
# come from float32 arithmetic and from the order in which numbers are summed.
_ROUNDING = 1e-6


def gate_comparisons(
    gate: Gate, answered: Answers, metrics: Mapping[str, float]
) -> Iterator[Comparison]:
    """Yields the comparisons with the gate's thresholds: for the whole split, then for its slices.

    A slice passes without being judged if it has fewer than `gate.slice_records` records, or if the
    metric is not defined on them.

    Args:
      gate: The thresholds.
      answered: The candidate's answers.
      metrics: The candidate's metrics on all of these records.

    Raises:
      UserError: While iterating, if the gate names a metric that is not in `metrics`, an unknown
        column, or a column with more than 100 distinct values.
    """
    task = answered.records.task
    for thresholds in (gate.thresholds, *gate.slices.values()):
        for metric in thresholds.keys() - metrics.keys():
            raise unknown("metric of a threshold", metric, metrics)
    for metric, threshold in gate.thresholds.items():
        yield reach("threshold", metric, metrics[metric], threshold, task, len(answered.labels))
    for column, thresholds in gate.slices.items():
        values = answered.column(column)
        if (count := len(np.unique(values))) > _MOST_VALUES:
            raise UserError(
                f"slices.{column}: {count:,} different values; at most {_MOST_VALUES} can be judged"
            )
        for part in slices(answered, values, _MOST_VALUES):
            count = part["records"]
            name = f" of {column} {part['value']} ({count:,} records)"
            for metric, threshold in thresholds.items():
                if metric not in part["metrics"] or count < gate.slice_records:
                    why = (
                        f"it takes {gate.slice_records}"
                        if metric in part["metrics"]
                        else "they do not define it"
                    )
                    words = f"{metric}{name} is not judged: {why}"
                    yield Comparison(
                        who="slice", passed=True, words=words, metric=metric, records=count
                    )
                else:
                    yield reach(
                        "slice", metric, part["metrics"][metric], threshold, task, count, name
                    )


def reach(
    who: str, metric: str, value: float, threshold: float, task: Task, records: int, name: str = ""
) -> Comparison:
    """Compares one metric with its threshold.

    Args:
      who: Kind of the comparison, `threshold` or `slice`.
      metric: Name of the metric.
      value: Its value; NaN does not pass.
      threshold: Least value that passes, or the largest one if less of the metric is better.
      task: Decides which of two values is better.
      records: Number of records that the value was measured on.
      name: Text to put behind the metric's name in the comparison's words, such as ` of day 3`.
    """
    passed = bool(value == threshold or task.better(value, threshold, metric))
    words = (
        f"{metric}{name} {value:.4f} {'reaches' if passed else 'misses'} the threshold "
        f"{threshold:.4f}"
    )
    return Comparison(
        who=who,
        passed=passed,
        words=words,
        metric=metric,
        candidate=float(value),
        threshold=threshold,
        records=records,
    )


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
    """Compares the candidate's answers with other answers to the same records.

    The metric is the one that the task ranks models by. The candidate passes if it is better by
    more than `margin`, and if a lead of that size is unlikely to be chance: for accuracy of classes
    by McNemar's exact test, for all other metrics by a permutation test. A difference of at most a
    millionth of the two values' sum counts as none. The order of the records makes no difference.

    Args:
      who: Kind of the comparison, `champion` or `baseline`.
      name: The other answers, in words.
      ours: The candidate's answers.
      theirs: The other answers to the same records, [N, outputs].
      confidence: The p-value of the lead may be at most `1 - confidence`. With None or 0 the margin
        alone decides.
      margin: Lead that has to be exceeded, in the unit of the metric.
      swaps: Number of random permutations; records that have no more permutations than this are
        tested with all of them.

    Returns:
      The comparison. Its `p` is 1 if the candidate does not lead. If the metric is not defined for
      the other answers, the candidate does not pass.
    """
    task = ours.records.task
    labels = ours.labels
    metrics = ours.measure()
    metric = task.ranked_by(metrics)
    candidate = float(metrics[metric])
    other = float(task.measure(theirs, labels).get(metric, math.nan))
    difference = other - candidate if metric in task.lower_is_better else candidate - other
    rounding = _ROUNDING * (abs(candidate) + abs(other))
    if abs(difference) <= rounding:
        difference = 0.0
    right = (
        [answers.argmax(axis=1) == labels for answers in (ours.answers, theirs)]
        if labels.ndim == 1
        else []
    )
    if not difference > 0:
        p = 1.0
    elif metric == "accuracy" and [each.mean() for each in right] == [candidate, other]:
        # McNemar's exact test (1947, doi:10.1007/BF02295996) counts only the records on which
        # exactly one of the two models is right.
        won = (right[0] > right[1]).sum()
        p = stats.binomtest(won, (right[0] != right[1]).sum(), alternative="greater").pvalue
    else:
        p = _permutation_test(difference - rounding, metric, ours, theirs, swaps)
    passed = difference > margin and (not confidence or bool(p <= 1 - confidence))
    words = f"{metric} {candidate:.4f} {'beats' if passed else 'does not beat'} {name}, {other:.4f}"
    if confidence and passed:
        words += f" (p {p:.3f})"
    elif confidence and difference > margin:
        words += f", by more than chance (p {p:.3f}; at most {1 - confidence:.3g} is asked for)"
    elif difference > 0 and not passed:
        words += f", by more than the margin {margin:.4g}"
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
        records=len(labels),
    )


@np.errstate(invalid="ignore")  # Infinite metrics have NaN as their difference.
def _permutation_test(
    lead: float, metric: str, answered: Answers, theirs: np.ndarray, swaps: int
) -> float:
    """Returns the one-sided p-value of a lead: how often chance gives one at least as large.

    For each permutation, some records exchange the answers of the two models. All 2**N permutations
    are tried if these are at most `swaps`, else `swaps` random ones. For AUC the ranks of scores
    are exchanged (Bandos et al. 2005, doi:10.1002/sim.2149), since the scores of two models need
    have no scale in common.

    Args:
      lead: Difference of the metric between the two models, greater than 0.
      metric: Name of the metric.
      answered: The candidate's answers.
      theirs: The other model's answers, [N, outputs].
      swaps: Number of random permutations.
    """
    ours = answered.answers
    labels = answered.labels
    n = len(labels)
    if metric == "auc":
        ours, theirs = (stats.rankdata(scores, axis=0) / (n + 1) for scores in (ours, theirs))
    # The records are sorted by their labels and answers, so that the p-value does not depend on the
    # order in which they came. The first keys are the same whichever model gave which answer.
    both = [*np.minimum(ours, theirs).T, *np.maximum(ours, theirs).T]
    order = np.lexsort([*ours.T, *both, *np.reshape(labels, (n, -1)).T])
    ours, theirs, labels = (array[order] for array in (ours, theirs, labels))
    is_exact = n < swaps.bit_length()
    random = np.random.default_rng(0)
    drawn = (random.random(n) < 0.5 for _ in range(swaps))
    leads = []
    for kept in itertools.product((True, False), repeat=n) if is_exact else drawn:
        kept = np.reshape(kept, (n, 1))
        pair = np.where(kept, ours, theirs), np.where(kept, theirs, ours)
        metrics = (answered.records.task.measure(answers, labels) for answers in pair)
        leads.append(np.subtract(*(each.get(metric, math.nan) for each in metrics)))
    # Each permutation stands for two, because exchanging all other records instead gives the
    # opposite lead. NaN counts against the candidate. If not all permutations were tried, the
    # observed lead counts as one more.
    hits = (~(np.abs(leads) < lead)).sum()
    return (hits + (not is_exact)) / (2 * len(leads) + 2 * (not is_exact))
