"""The receiver operating characteristic of scores for two classes (Fawcett 2006, doi:10.1016/j.patrec.2005.10.010).

auc(scores, labels == 1)  # the chance that a positive example scores higher than a negative one
"""

import numpy as np


def auc(scores: np.ndarray, positive: np.ndarray) -> float | None:
    """Area under the curve, exactly: from ranks, equal scores sharing theirs; None if a class is absent.

    Args:
      scores: [N], higher for the positive class.
      positive: bool [N].
    """
    if positive.all() or not positive.any():
        return None
    negative = np.sort(scores[~positive])
    fewest, most = (np.searchsorted(negative, scores[positive], side) for side in ("left", "right"))
    return float((fewest + most).mean() / 2 / len(negative))


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
