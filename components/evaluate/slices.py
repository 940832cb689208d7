"""Metrics of the slices of a split by the values of a column."""

from typing import Any

import numpy as np

from components.evaluate.categories import Categories
from components.evaluate.score import Answers

_QUARTERS = 4


def slices(answered: Answers, values: np.ndarray, most: int = 24) -> list[dict[str, Any]]:
    """Splits records by the values of a column, and measures each slice.

    Args:
      answered: A model's answers.
      values: The column's value for each of these records, [N]. Each distinct value is a slice.
      most: Most distinct values of which each is a slice. Of more, numbers are cut into quarters,
        and texts beyond the most frequent are one slice together.

    Returns:
      `value` (a name of the slice), `records` (their number) and `metrics` of each slice, the worst
      slice first. They are ordered by the metric that the task ranks by, among those that all
      slices have.
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
