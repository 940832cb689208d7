"""Figures of a model's answers beside the task's metrics: by class, curves over thresholds, errors.

    figures("classification", ["no", "yes"], answers, labels)["confusion"]

Pure functions of answers and labels, by scikit-learn's definitions. A share of nothing is NaN.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn import metrics

from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION

_POINTS = 100
_TOP = (2, 3, 5)
_QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)


def figures(
    task: str, names: Sequence[str], answers: np.ndarray, labels: np.ndarray
) -> dict[str, Any]:
    """Returns the figures of a task's answers, as plain data.

    Args:
      task: As manifests name it.
      names: Of its classes or targets.
      answers: [N, classes] or [N, targets].
      labels: [N] or [N, targets].

    Returns:
      For classes `confusion` has examples by [true class][predicted class]; for two `roc` has
      points of false positive rate, true positive rate, and the least probability that counts as
      positive.
    """
    if task == REGRESSION:
        residuals = answers.astype(np.float64) - labels.reshape(answers.shape)
        return {
            "residuals": [
                {
                    "name": name,
                    "mean": errors.mean(),
                    "quantiles": {str(q): np.quantile(errors, q) for q in _QUANTILES},
                }
                for name, errors in zip(names, residuals.T, strict=True)
            ]
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
        values["roc"] = np.minimum(
            _thinned(*curve), 1.0
        ).tolist()  # the first threshold is infinite
        precision, recall, thresholds = metrics.precision_recall_curve(positive, scores)
        values["precision_recall"] = {
            "average_precision": float(metrics.average_precision_score(positive, scores)),
            "points": _thinned(recall[-2::-1], precision[-2::-1], thresholds[::-1]).tolist(),
        }
    return values


def _by_class(
    names: Sequence[str], true: np.ndarray, predicted: np.ndarray
) -> list[dict[str, Any]]:
    """Returns precision, recall, F1 and the number of positive `records` of each column of bool [N, k]."""
    columns = metrics.precision_recall_fscore_support(true, predicted, zero_division=np.nan)
    keys = ("name", "precision", "recall", "f1", "records")
    rows = zip(names, *(column.tolist() for column in columns), strict=True)
    return [dict(zip(keys, row, strict=True)) for row in rows]


def _thinned(*columns: np.ndarray) -> np.ndarray:
    """Returns the columns side by side, at most 101 rows with the first and the last."""
    kept = np.linspace(0, len(columns[0]) - 1, _POINTS + 1).round().astype(int)
    return np.stack(columns, axis=1)[np.unique(kept)]
