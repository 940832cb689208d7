"""The parts of a split, by class and by the values of chosen columns, with their metrics, the worst first.

parts(task, answers, labels, {"company": companies})["company"][0]     # {"value": "Blue", "records": 31, "metrics": {...}}
"""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from trainer.nn.tasks.base import Task

_MOST_VALUES, _QUANTILES = 24, 4


def parts(task: Task, answers: np.ndarray, labels: np.ndarray, columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """By column, each part's `value` in words, `records` and `metrics`; the worst by the first ranking metric that all have.

    Of numbers with more than 24 values the parts are quarters by rank; of texts the 24 most frequent, and all others as one.

    Args:
      task: Whose metrics.
      answers: The first of the task's answers, [N, outputs].
      labels: As the dataset has them.
      columns: Values by name, [N] each.
    """
    found = {}
    for name, values in columns.items():
        words = in_words(values)
        each = []
        for value in dict.fromkeys(words.tolist()):
            chosen = words == value
            measured = task.measure(answers[chosen], labels[chosen])
            each.append({"value": value, "records": int(chosen.sum()), "metrics": measured})
        by = task.ranked_by({metric: 0.0 for metric in each[0]["metrics"] if all(metric in e["metrics"] for e in each)})
        sign = -1 if by in task.lower_is_better else 1
        found[name] = sorted(each, key=lambda part, by=by, sign=sign: (sign * part["metrics"][by], part["value"]))
    return found


def in_words(values: np.ndarray) -> np.ndarray:
    """Which part each record is in, [N] texts."""
    distinct, at, counts = np.unique(values, return_inverse=True, return_counts=True)
    names = [v.decode(errors="replace") if isinstance(v, bytes) else str(v) for v in distinct.tolist()]
    if len(distinct) > _MOST_VALUES and values.dtype == object:
        kept = set(np.argsort(-counts, kind="stable")[:_MOST_VALUES].tolist())
        names = [name if i in kept else f"{len(distinct) - _MOST_VALUES} others" for i, name in enumerate(names)]
    elif len(distinct) > _MOST_VALUES:
        cuts = np.unique(np.quantile(values, np.linspace(0, 1, _QUANTILES + 1)[1:-1], method="inverted_cdf"))
        ends = [f"{low:g} < x <= {high:g}" for low, high in itertools.pairwise(cuts)]
        ranges = [f"x <= {cuts[0]:g}", *ends, f"x > {cuts[-1]:g}"]
        names = [ranges[i] for i in np.searchsorted(cuts, distinct, side="left")]
    return np.array(names, object)[at]
