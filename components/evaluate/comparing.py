"""What a candidate is held against: thresholds, and other answers to the same records.

beat("champion", "the champion", found["candidate"], found["champion"], task, "auc", confidence=0.95, margin=0.0)
"""

import math
from statistics import NormalDist

import numpy as np

from components.evaluate.bootstrap import Figures, p_value
from components.evaluate.gate import Comparison
from trainer.nn.tasks.base import Task

_POWER, _STEP = 0.8, 0.005
_UNDEFINED = np.full(1, math.nan)


def reach(
    who: str, metric: str, value: float, threshold: float, task: Task, records: int, *, of: str = ""
) -> Comparison:
    """Whether a metric (of some records: in words `of`) reaches its threshold; to be equal is enough."""
    passed = bool(value == threshold or task.better(value, threshold, metric))
    words = f"{metric}{of} {value:.4f} {'reaches' if passed else 'misses'} the threshold {threshold:.4f}"
    known = {"metric": metric, "candidate": float(value), "threshold": threshold, "records": records}
    return Comparison(who=who, passed=passed, words=words, **known)


def beat(
    who: str,
    name: str,
    ours: Figures,
    theirs: Figures,
    task: Task,
    metric: str,
    *,
    confidence: float | None,
    margin: float,
) -> Comparison:
    """Whether the candidate is better than another one on the same records, by more than a margin and more than chance.

    Args:
      who: As a comparison has it.
      name: Of the other one, in words.
      ours: The candidate's figures.
      theirs: The other one's, of the same samples.
      task: Of both.
      metric: By which they are compared.
      confidence: With which it must be more than chance; None lets the figures alone decide.
      margin: In the unit of the metric.
    """
    sign = -1 if metric in task.lower_is_better else 1
    mine, other = (float(each.metrics.get(metric, math.nan)) for each in (ours, theirs))
    difference, level = sign * (mine - other), confidence or 0.95
    samples = sign * (ours.samples.get(metric, _UNDEFINED) - theirs.samples.get(metric, _UNDEFINED))
    p, leads = p_value(difference, samples, margin), difference > margin
    passed = p <= 1 - level if confidence else leads
    words = f"{metric} {mine:.4f} {'beats' if passed else 'does not beat'} {name}, {other:.4f}"
    if confidence and leads:
        words += (
            f" (p {p:.3f})" if passed else f", by more than chance (p {p:.3f}; at most {1 - level:.3g} is asked for)"
        )
    elif margin:
        words += f" {'and' if passed else 'by more than'} the margin {margin:.4g}"
    step = _STEP * (abs(other) if sign < 0 else 1)
    return Comparison(
        who=who,
        passed=passed,
        words=words,
        metric=metric,
        candidate=mine,
        other=other,
        difference=difference,
        interval=_interval(difference, samples, level),
        p=p,
        threshold=margin,
        records=ours.records,
        records_needed=_needed(float(np.std(samples)) * ours.records**0.5, step, level),
    )


def _interval(difference: float, samples: np.ndarray, level: float) -> tuple[float, float] | None:
    """What is left when either end is cut off as the test does it: as far as the samples reach, and as far as they stray."""
    if np.isnan(samples).any():
        return None
    low, high = np.quantile(samples, (1 - level, level))
    return float(min(low, 2 * difference - high)), float(max(high, 2 * difference - low))


def _needed(deviation: float, step: float, level: float) -> int | None:
    """Records that show a difference of `step` where one record's has this standard deviation (a normal approximation)."""
    if not (deviation > 0 and step > 0):
        return None
    return math.ceil(((NormalDist().inv_cdf(level) + NormalDist().inv_cdf(_POWER)) * deviation / step) ** 2)
