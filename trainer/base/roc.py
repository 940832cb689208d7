"""The receiver operating characteristic of scores for two classes (Fawcett 2006, doi:10.1016/j.patrec.2005.10.010).

auc(scores, labels == 1)  # the chance that a positive example scores higher than a negative one
"""

from typing import Any

import numpy as np


def auc(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray | None = None) -> Any:
    """Area under the curve, exactly: from ranks, equal scores sharing theirs; None if a class is absent.

    Args:
      scores: [N], higher for the positive class.
      positive: bool [N].
      weights: How often each example is in each of R samples, [N, R]: the areas are then [R], NaN where a class is absent.
    """
    if positive.all() or not positive.any():
        return None
    counts = np.ones((len(scores), 1)) if weights is None else weights
    negative = np.flatnonzero(~positive)[np.argsort(scores[~positive], kind="stable")]
    below = np.concatenate([np.zeros_like(counts[:1]), np.cumsum(counts[negative], axis=0)])  # so many of the least
    fewest, most = (np.searchsorted(scores[negative], scores[positive], side) for side in ("left", "right"))
    won = np.einsum("nr,nr->r", counts[positive], (below[fewest] + below[most]) / 2)
    with np.errstate(invalid="ignore"):
        areas = won / (counts[positive].sum(axis=0) * below[-1])
    return float(areas[0]) if weights is None else areas


def curve(scores: np.ndarray, positive: np.ndarray, points: int = 100) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """False and true positive rates from (0, 0) to (1, 1), and the least score that counts as positive at each point.

    Args:
      scores: [N], higher for the positive class.
      positive: bool [N]; both classes are there.
      points: At most so many between the ends, evenly spread over the examples.
    """
    order = np.argsort(-scores, kind="stable")
    # Only where the score changes is there a threshold.
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    ends = ends[np.unique(np.linspace(0, len(ends) - 1, points + 1).round().astype(int))]
    hits = np.cumsum(positive[order])[ends]
    misses = ends + 1 - hits
    thresholds = np.append(np.inf, scores[order][ends])
    return np.append(0.0, misses / misses[-1]), np.append(0.0, hits / hits[-1]), thresholds
