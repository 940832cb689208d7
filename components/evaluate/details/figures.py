"""What there is to know of answers beside the task's metrics: by class, of the probabilities, of each threshold, of errors.

    figures("classification", ["no", "yes"], answers, labels)["calibration"]["ece"]

Pure functions of answers and labels; a share of nothing is None. All of it is plain data.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from common import roc
from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION

_BINS, _POINTS = 10, 100
_TOP = (2, 3, 5)
_THRESHOLDS = np.round(np.arange(0.05, 1.0, 0.05), 2)
_QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)


def figures(task: str, names: Sequence[str], answers: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Those of a task, as manifests name it, whose classes or targets have these names.

    Of classes `confusion` has examples by [true class][predicted class]; of two `roc` has false positive rate, true positive
    rate, and the least probability that counts as positive.
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
        each = zip(names, (answers > 0.5).T, labels.T == 1, strict=True)
        return {"classes": [{"name": name, **_shares(said, true)} for name, said, true in each]}
    if task != CLASSIFICATION:
        return {}
    said, classes = answers.argmax(axis=1), len(names)
    likelier = (answers > answers[np.arange(len(labels)), labels][:, np.newaxis]).sum(axis=1)  # than the true class
    found = {
        "confusion": confusion(answers, labels),
        "classes": [{"name": name, **_shares(said == i, labels == i)} for i, name in enumerate(names)],
        "top_k": {str(k): float((likelier < k).mean()) for k in _TOP if k < classes},
        "calibration": calibration(answers.max(axis=1), said == labels),
    }
    if classes == 2:
        scores, positive = answers[:, 1], labels == 1
        found["thresholds"] = [{"threshold": t, **_shares(scores >= t, positive)} for t in _THRESHOLDS.tolist()]
        if positive.any() and not positive.all():
            found["roc"] = np.minimum(np.stack(roc.curve(scores, positive), axis=1), 1.0).tolist()
            found["precision_recall"] = precision_recall(scores, positive)
    return found


def confusion(answers: np.ndarray, labels: np.ndarray) -> list[list[int]]:
    """Examples by [true class][predicted class], of the probabilities [N, classes] and labels [N]."""
    classes = answers.shape[1]
    cells = np.bincount(labels * classes + answers.argmax(axis=1), minlength=classes * classes)
    return cells.reshape(classes, classes).tolist()


def calibration(confidence: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """Whether what is said with confidence p is right that often: the curve, and the expected calibration error `ece`.

    The mean over records of |accuracy - confidence| of their bin (Guo et al. 2017, arXiv:1706.04599), 10 bins of one width. The
    confidence is of what was said, [N], from 0 to 1; `right`, bool [N], whether that was true.
    """
    at = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    counts = np.bincount(at, minlength=_BINS)
    sums = [np.bincount(at, weights=values, minlength=_BINS) for values in (confidence, right)]
    bins = [
        {"records": int(n), "confidence": float(c / n), "accuracy": float(a / n)}
        for n, c, a in zip(counts, *sums, strict=True)
        if n
    ]
    return {"ece": float(np.abs(sums[0] - sums[1]).sum() / len(right)), "bins": bins}


def precision_recall(scores: np.ndarray, positive: np.ndarray) -> dict[str, Any]:
    """The mean of precision over recall, scikit-learn's `average_precision`, and at most 100 `points` of recall, precision, threshold.

    Scores, [N], are higher for the positive class; `positive` is bool [N], and both classes are there.
    """
    misses, recall, thresholds = (each[1:] for each in roc.curve(scores, positive, points=len(scores)))
    hits = recall * positive.sum()
    precision = hits / (hits + misses * (~positive).sum())
    shown = np.unique(np.linspace(0, len(recall) - 1, _POINTS).round().astype(int))
    points = np.stack([recall, precision, thresholds], axis=1)[shown]
    return {"average_precision": float((np.diff(recall, prepend=0.0) * precision).sum()), "points": points.tolist()}


def _shares(said: np.ndarray, true: np.ndarray) -> dict[str, Any]:
    """Of a class, which was said or not and true or not, bool [N] each: `records` that are of it, and the usual shares."""
    hits, positives, records = int((said & true).sum()), int(said.sum()), int(true.sum())
    return {
        "records": records,
        "precision": hits / positives if positives else None,
        "recall": hits / records if records else None,
        "f1": 2 * hits / (positives + records) if positives + records else None,
    }
