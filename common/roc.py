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
