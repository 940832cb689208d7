"""Two decisions, kept apart: is the model worth a version, and is it better than the champion?"""

from collections.abc import Callable, Mapping
from typing import Any

REJECT, REGISTER, PROMOTE = "reject", "register", "promote"


def decide(
    metrics: Mapping[str, float],
    baseline: Mapping[str, Any],
    *,
    metric: str,
    better: Callable[[float, float, str], bool],
    thresholds: Mapping[str, float],
    champion: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Judges by figures from one split.

    Args:
      metrics: Of the candidate.
      baseline: Those of the answer that needs no model, on the same records, and its `rule`; the candidate must beat it.
      metric: What baseline and champion are compared by.
      better: Whether a value of a metric is better than another.
      thresholds: By metric; reaching all is enough.
      champion: The `metrics` of the current one on the same records, or None and why there are none: `incomparable`,
        when nothing is known to be better than it. None where there is no champion.

    Returns:
      The `verdict`: `reject`; `register` as a new version; or `promote`, which registers and makes it the champion. And
      the `reasons`: every comparison that was made, in words and figures.
    """
    reasons, reached = [], True
    for name, least in thresholds.items():
        enough = metrics[name] == least or better(metrics[name], least, name)
        reached &= enough
        reasons.append(f"{name} {metrics[name]:.4f} {'reaches' if enough else 'misses'} the threshold {least:.4f}")

    def beats(who: str, figures: Mapping[str, float]) -> bool:
        beaten = better(metrics[metric], figures[metric], metric)
        how = "beats" if beaten else "does not beat"
        reasons.append(f"{metric} {metrics[metric]:.4f} {how} the {who}, {figures[metric]:.4f}")
        return beaten

    useful = beats(baseline["rule"], baseline)
    if champion is None:
        best = True
        reasons.append("there is no champion to compare with")
    elif champion["metrics"] is None:
        best = False
        reasons.append(f"cannot be compared with the champion: {champion['incomparable']}")
    else:
        best = beats("champion", champion["metrics"])
    accepted = PROMOTE if best else REGISTER
    return {"verdict": accepted if reached and useful else REJECT, "reasons": reasons}
