"""Figures of a model's answers beside the task's metrics: by class, curves over thresholds, errors.

    figures("classification", ["no", "yes"], answers, labels)["confusion"]

These are pure functions of answers and labels, by scikit-learn's definitions. A ratio whose divisor
is 0 is NaN.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn import metrics

from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION

_POINTS = 100
_TOP = (2, 3, 5)
_GROUPS, _LEAST = 20, 5  # Most groups of a calibration, and least records of each.
_QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)


def figures(
    task: str, names: Sequence[str], answers: np.ndarray, labels: np.ndarray
) -> dict[str, Any]:
    """Computes the figures that a task has.

    Args:
      task: Task as manifests name it.
      names: Names of its classes or targets.
      answers: Predictions, [N, classes] probabilities or [N, targets].
      labels: Labels, [N] or [N, targets].

    Returns:
      Figures by name, as lists and dicts.

      `regression` has `residuals`: for each target its `name`, and the `mean` and the `quantiles`
      (by texts such as `0.05`) of the prediction minus the label. It also has `calibration`: for
      each target its `name` and `points`, the mean prediction and the mean label of at most 20
      groups of records with near predictions.

      `multi_label` has `classes`: for each target its `name`, `precision`, `recall` and `f1`, where
      a probability above 0.5 counts as positive, and the number of positive `records`. A ratio
      whose divisor is 0 is NaN.

      `classification` has such `classes` for the likeliest class; `confusion`, the number of
      records by [true class][predicted class]; and `top_k`, the share of records whose class is
      among the k likeliest, by the text of k, for 2, 3 and 5 if there are more classes. Two classes
      that both occur have two curves as well, of at most 101 points, with class 1 as the positive
      one: points of `roc` are false positive rate, true positive rate and the least probability
      that counts as positive; `precision_recall` has the `average_precision` and `points` of
      recall, precision and that probability.

      Any other task has none.
    """
    if task == REGRESSION:
        answers, labels = answers.astype(np.float64), labels.reshape(answers.shape)
        residuals = answers - labels
        pairs = zip(names, answers.T, labels.T, strict=True)
        return {
            "calibration": [{"name": name, "points": _calibration(*pair)} for name, *pair in pairs],
            "residuals": [
                {
                    "name": name,
                    "mean": errors.mean(),
                    "quantiles": {str(q): np.quantile(errors, q) for q in _QUANTILES},
                }
                for name, errors in zip(names, residuals.T, strict=True)
            ],
        }
    if task == MULTI_LABEL:
        return {"classes": _by_class(names, labels == 1, answers > 0.5)}
    if task != CLASSIFICATION:
        return {}
    classes = range(len(names))
    predicted = answers.argmax(axis=1)
    one_hot = np.eye(len(names), dtype=bool)
    values = {
        "confusion": metrics.confusion_matrix(labels, predicted, labels=classes).tolist(),
        "classes": _by_class(names, one_hot[labels], one_hot[predicted]),
        "top_k": {
            str(k): float(metrics.top_k_accuracy_score(labels, answers, k=k, labels=classes))
            for k in _TOP
            if k < len(names)
        },
    }
    scores = answers[:, -1]
    positive = labels == 1
    if len(names) == 2 and positive.any() and not positive.all():
        curve = metrics.roc_curve(positive, scores, drop_intermediate=False)
        # scikit-learn's first threshold is infinite, which JSON cannot express.
        values["roc"] = np.minimum(_thinned(*curve), 1.0).tolist()
        precision, recall, thresholds = metrics.precision_recall_curve(positive, scores)
        values["precision_recall"] = {
            "average_precision": float(metrics.average_precision_score(positive, scores)),
            "points": _thinned(recall[-2::-1], precision[-2::-1], thresholds[::-1]).tolist(),
        }
    return values


def _by_class(
    names: Sequence[str], true: np.ndarray, predicted: np.ndarray
) -> list[dict[str, Any]]:
    """Returns `name`, `precision`, `recall`, `f1` and `records` of each class.

    A ratio whose divisor is 0 is NaN.

    Args:
      names: Names of the k classes.
      true: Which classes a record has, bool [N, k]; `records` counts these.
      predicted: Which classes it is predicted to have, bool [N, k].
    """
    columns = metrics.precision_recall_fscore_support(true, predicted, zero_division=np.nan)
    keys = ("name", "precision", "recall", "f1", "records")
    rows = zip(names, *(column.tolist() for column in columns), strict=True)
    return [dict(zip(keys, row, strict=True)) for row in rows]


def _calibration(answers: np.ndarray, labels: np.ndarray) -> list[list[float]]:
    """Returns the mean prediction and the mean label of each group of near predictions [N]."""
    order = np.lexsort([labels, answers])
    groups = np.array_split(order, max(1, min(_GROUPS, len(order) // _LEAST)))
    return [[answers[rows].mean(), labels[rows].mean()] for rows in groups]


def _thinned(*columns: np.ndarray) -> np.ndarray:
    """Returns columns as an array of rows, thinned out to at most 101 rows.

    The first and the last row are kept; the others are evenly spaced.
    """
    kept = np.linspace(0, len(columns[0]) - 1, _POINTS + 1).round().astype(int)
    return np.stack(columns, axis=1)[np.unique(kept)]
