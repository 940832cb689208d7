"""Two decisions, kept apart: is the model worth a version, and is it better than the champion?"""

from collections.abc import Mapping
from typing import Any

REJECT, REGISTER, PROMOTE = "reject", "register", "promote"


def decide(
    metrics: Mapping[str, float],
    baseline: Mapping[str, Any],
    *,
    metric: str,
    thresholds: Mapping[str, float],
    champion: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Judges by figures from one split.

    Args:
      metrics: Of the candidate.
      baseline: Those of the answer that needs no model, on the same records, and its `rule`; the candidate must beat it.
      metric: What baseline and champion are compared by.
      thresholds: By metric; reaching all is enough.
      champion: The `metrics` of the current one on the same records, or None and why there are none: `incomparable`,
        when nothing is known to be better than it. None where there is no champion.

    Returns:
      The `verdict`: `reject`; `register` as a new version; or `promote`, which registers and makes it the champion. And
      the `reasons`: every comparison that was made, in words and figures.
    """
    reasons, reached = [], True
    for name, least in thresholds.items():
        reached &= metrics[name] >= least
        is_reached = "reaches" if metrics[name] >= least else "is below"
        reasons.append(f"{name} {metrics[name]:.4f} {is_reached} the threshold {least:.4f}")

    def beats(who: str, figures: Mapping[str, float]) -> bool:
        better = metrics[metric] > figures[metric]
        reasons.append(f"{'beats' if better else 'does not beat'} the {who}, {figures[metric]:.4f}")
        return better

    useful = beats(baseline["rule"], baseline)
    if champion is None:
        better = True
        reasons.append("there is no champion to compare with")
    elif champion["metrics"] is None:
        better = False
        reasons.append(f"cannot be compared with the champion: {champion['incomparable']}")
    else:
        better = beats("champion", champion["metrics"])
    accepted = PROMOTE if better else REGISTER
    return {"verdict": accepted if reached and useful else REJECT, "reasons": reasons}
