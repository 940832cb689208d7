"""How long to train between checkpoints, by what one costs and how often machines fail (Young 1974, Daly 2006).

advised_s(cost_s=2.0, mtbf_s=3600.0)  # 118.7: checkpoints cost 1.7 % then, and what is lost with a machine as much
"""

import math
from collections.abc import Mapping

FIRST_S = 10.0  # until the first checkpoint has shown what one costs


def advised_s(cost_s: float, mtbf_s: float) -> float:
    """Seconds of training from one checkpoint to the next after which least time is lost to both, at random failures.

    A checkpoint costs training `cost_s`; every `mtbf_s`, on average, a failure sends the job back to the last one.
    """
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    part = cost_s / (2 * mtbf_s)
    return math.sqrt(2 * cost_s * mtbf_s) * (1 + math.sqrt(part) / 3 + part / 9) - cost_s


def vital(replicas: Mapping[str, int], *, asynchronous: bool) -> int:
    """How many of the replicas, by role, have all begin again at the newest checkpoint if they fail."""
    # A worker that parameter servers have lost comes back alone.
    return sum(count for role, count in replicas.items() if not (asynchronous and role == "worker"))
