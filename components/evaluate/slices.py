"""Slices of a split by the values of a column, with their metrics, the worst first."""

from typing import Any

import numpy as np

from components.evaluate.categories import Categories
from components.evaluate.score import Answers

_QUARTERS = 4


def slices(answered: Answers, values: np.ndarray, most: int = 24) -> list[dict[str, Any]]:
    """Returns `value`, `records` and `metrics` of each slice, the worst first by the first metric that all have.

    Args:
      answered: A model's answers.
      values: Of a column, [N]. Each is a slice.
      most: Of more values, quarters of a number are slices, and of texts the most frequent ones and
        all others.
    """
    rows = []
    task = answered.records.task
    categories = Categories(values, most, _QUARTERS)
    names = categories.names()
    places = categories.of(values)
    for category in np.unique(places).tolist():
        chosen = answered.of(places == category)
        rows.append(
            {"value": names[category], "records": len(chosen.labels), "metrics": chosen.measure()}
        )
    common = set.intersection(*(set(row["metrics"]) for row in rows))
    metric = task.ranked_by(dict.fromkeys(common, 0.0))
    sign = -1 if metric in task.lower_is_better else 1
    return sorted(rows, key=lambda row: (sign * row["metrics"][metric], row["value"]))
