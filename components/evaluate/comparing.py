"""Holds a candidate against thresholds, and against other answers to the same records."""

import math
from statistics import NormalDist

import numpy as np

from components.evaluate.bootstrap import Figures, p_value
from components.evaluate.gate import Comparison
from trainer.nn.tasks.base import Task

_POWER, _STEP = 0.8, 0.005


def reach(
    who: str, metric: str, value: float, threshold: float, task: Task, records: int, *, of: str = ""
) -> Comparison:
    """Whether a metric (of some records: in words `of`) reaches its threshold; to be equal is enough."""
    passed = bool(value == threshold or task.better(value, threshold, metric))
    words = f"{metric}{of} {value:.4f} {'reaches' if passed else 'misses'} the threshold {threshold:.4f}"
    figures = {"candidate": float(value), "threshold": threshold, "records": records}
    return Comparison(who=who, passed=passed, words=words, metric=metric, **figures)


def beat(
    who: str,
    name: str,
    ours: Figures,
    theirs: Figures,
    task: Task,
    *,
    confidence: float | None,
    margin: float,
) -> Comparison:
    """Whether the candidate leads another one, `name` in words, by more than a margin and than chance.

    It is by the metric that its figures are ranked by, in whose unit the margin is. Its figures and the other one's are of the
    same samples. Without a confidence they decide alone.
    """
    metric = task.ranked_by(ours.metrics)
    sign = -1 if metric in task.lower_is_better else 1
    mine, other = (float(each.metrics.get(metric, math.nan)) for each in (ours, theirs))
    difference, level = sign * (mine - other), confidence or 0.95
    nothing = np.full(1, math.nan)
    with np.errstate(invalid="ignore"):  # of infinite ones
        samples = sign * (ours.samples.get(metric, nothing) - theirs.samples.get(metric, nothing))
    p, leads = p_value(difference, samples, margin), difference > margin
    passed = p <= 1 - level if confidence else leads
    # What is left when either end is cut off as the test does it: as far as the samples reach, and as far as they stray.
    interval = None
    if np.isfinite(samples).all():
        low, high = np.quantile(samples, (1 - level, level)).tolist()
        interval = min(low, 2 * difference - high), max(high, 2 * difference - low)
    words = f"{metric} {mine:.4f} {'beats' if passed else 'does not beat'} {name}, {other:.4f}"
    if passed and confidence:
        words += f" ({f'by {interval[0]:.4f} at least, ' if interval else ''}p {p:.3f})"
    elif leads and confidence:
        words += f", by more than chance (p {p:.3f}; at most {1 - level:.3g} is asked for)"
    elif difference > 0 and not passed:
        words += f", by more than the margin {margin:.4g}"
    # By the normal approximation; an error is looked at in its own unit.
    step, reach_of = _STEP * (abs(other) if sign < 0 else 1), NormalDist().inv_cdf(level) + NormalDist().inv_cdf(_POWER)
    seen = step > 0 and ours.records * (reach_of * float(np.std(samples)) / step) ** 2
    needed = math.ceil(seen) if seen > 0 else None
    if needed and not passed:
        what = "half a percent less" if sign < 0 else "half a point more"
        words += f"; {what} is seen four times out of five with {needed:,} records, here are {ours.records:,}"
    figures = {"candidate": mine, "other": other, "difference": difference, "interval": interval, "p": p}
    known = {"threshold": margin, "records": ours.records, "records_needed": needed}
    return Comparison(who=who, passed=passed, words=words, metric=metric, **figures, **known)
