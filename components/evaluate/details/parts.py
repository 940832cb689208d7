"""The parts of a split by the values of a column, with their metrics, the worst first.

parts(answered, in_words(companies))[0]     # {"value": "Blue", "records": 31, "metrics": {...}}
"""

import itertools
from typing import Any

import numpy as np

from components.evaluate.score import Answers

_QUANTILES = 4


def parts(answered: Answers, words: np.ndarray) -> list[dict[str, Any]]:
    """Of the part that each record is in, [N]: `value`, `records`, `metrics`; the worst first by the first metric that all have."""
    each, task = [], answered.records.task
    for value in dict.fromkeys(words.tolist()):
        chosen = answered.of(words == value)
        each.append({"value": value, "records": len(chosen.labels), "metrics": chosen.measure()})
    by = task.ranked_by({metric: 0.0 for metric in each[0]["metrics"] if all(metric in e["metrics"] for e in each)})
    sign = -1 if by in task.lower_is_better else 1
    return sorted(each, key=lambda part: (sign * part["metrics"][by], part["value"]))


def in_words(values: np.ndarray, most: int = 24) -> np.ndarray:
    """Which part each record is in, [N] texts, by its value in a column.

    Of numbers with more values than `most` the parts are quarters by rank; of texts the most frequent ones, and all others as one.
    """
    distinct, at, counts = np.unique(values, return_inverse=True, return_counts=True)
    names = [v.decode(errors="replace") if isinstance(v, bytes) else str(v) for v in distinct.tolist()]
    if len(distinct) > most and values.dtype == object:
        kept = set(np.argsort(-counts, kind="stable")[:most].tolist())
        names = [name if i in kept else f"{len(distinct) - most} others" for i, name in enumerate(names)]
    elif len(distinct) > most:
        cuts = np.unique(np.quantile(values, np.linspace(0, 1, _QUANTILES + 1)[1:-1], method="inverted_cdf"))
        ends = [f"{low:g} < x <= {high:g}" for low, high in itertools.pairwise(cuts)]
        ranges = [f"x <= {cuts[0]:g}", *ends, f"x > {cuts[-1]:g}"]
        names = [ranges[i] for i in np.searchsorted(cuts, distinct, side="left")]
    return np.array(names, object)[at]
