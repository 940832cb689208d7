"""Figures of a model's answers beside the task's metrics: by class, of the probabilities, by threshold, of errors.

    figures("classification", ["no", "yes"], answers, labels)["calibration"]["ece"]

Pure functions of answers and labels, by scikit-learn's definitions. A share of nothing is NaN.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn import metrics

from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION

_BINS = 10
_POINTS = 100
_TOP = (2, 3, 5)
_THRESHOLDS = np.round(np.arange(0.05, 1.0, 0.05), 2)
_QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)


def figures(task: str, names: Sequence[str], answers: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Returns the figures of a task's answers, as plain data.

    Args:
      task: As manifests name it.
      names: Of its classes or targets.
      answers: [N, classes] or [N, targets].
      labels: [N] or [N, targets].

    Returns:
      For classes `confusion` has examples by [true class][predicted class]; for two `roc` has points of false positive rate,
      true positive rate, and the least probability that counts as positive.
    """
    if task == REGRESSION:
        residuals = answers.astype(np.float64) - labels.reshape(answers.shape)
        spreads = np.quantile(residuals, _QUANTILES, axis=0).T.tolist()
        return {
            "residuals": [
                {"name": name, "mean": mean, "quantiles": dict(zip(map(str, _QUANTILES), spread, strict=True))}
                for name, mean, spread in zip(names, residuals.mean(axis=0).tolist(), spreads, strict=True)
            ]
        }
    if task == MULTI_LABEL:
        return {"classes": _by_column("name", names, labels == 1, answers > 0.5)}
    if task != CLASSIFICATION:
        return {}
    classes = range(len(names))
    predicted = answers.argmax(axis=1)
    one_hot = np.eye(len(names), dtype=bool)
    values = {
        "confusion": metrics.confusion_matrix(labels, predicted, labels=classes).tolist(),
        "classes": _by_column("name", names, one_hot[labels], one_hot[predicted]),
        "top_k": {
            str(k): float(metrics.top_k_accuracy_score(labels, answers, k=k, labels=classes))
            for k in _TOP
            if k < len(names)
        },
        "calibration": calibration(answers.max(axis=1), predicted == labels),
    }
    if len(names) == 2:
        scores, positive = answers[:, 1], labels == 1
        repeated = np.repeat(positive[:, np.newaxis], len(_THRESHOLDS), axis=1)
        values["thresholds"] = _by_column(
            "threshold", _THRESHOLDS.tolist(), repeated, scores[:, np.newaxis] >= _THRESHOLDS.astype(scores.dtype)
        )
        if positive.any() and not positive.all():
            curve = metrics.roc_curve(positive, scores, drop_intermediate=False)
            values["roc"] = np.minimum(_thinned(*curve), 1.0).tolist()  # the first threshold is infinite
            precision, recall, thresholds = metrics.precision_recall_curve(positive, scores)
            points = _thinned(recall[-2::-1], precision[-2::-1], thresholds[::-1])
            area = float(metrics.average_precision_score(positive, scores))
            values["precision_recall"] = {"average_precision": area, "points": points.tolist()}
    return values


def calibration(confidence: np.ndarray, correct: np.ndarray) -> dict[str, Any]:
    """Returns the calibration curve in bins of one width, and the expected calibration error `ece`.

    The error is the mean over records of |accuracy - confidence| of their bin (Guo et al. 2017, arXiv:1706.04599).

    Args:
      confidence: Probability of the predicted class, [N].
      correct: bool [N].
    """
    at = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    counts, confident, right = (np.bincount(at, weights, _BINS) for weights in (None, confidence, correct))
    bins = [
        {"records": int(n), "confidence": float(c / n), "accuracy": float(a / n)}
        for n, c, a in zip(counts, confident, right, strict=True)
        if n
    ]
    return {"ece": float(np.abs(confident - right).sum() / len(correct)), "bins": bins}


def _by_column(key: str, names: Sequence[Any], true: np.ndarray, predicted: np.ndarray) -> list[dict[str, Any]]:
    """Returns precision, recall, F1 and the number of positive `records` of each column of bool [N, k]."""
    columns = metrics.precision_recall_fscore_support(true, predicted, zero_division=np.nan)
    keys = (key, "precision", "recall", "f1", "records")
    return [dict(zip(keys, row, strict=True)) for row in zip(names, *(c.tolist() for c in columns), strict=True)]


def _thinned(*columns: np.ndarray) -> np.ndarray:
    """Returns the columns side by side, at most 101 rows with the first and the last."""
    kept = np.linspace(0, len(columns[0]) - 1, _POINTS + 1).round().astype(int)
    return np.stack(columns, axis=1)[np.unique(kept)]
