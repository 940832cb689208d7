"""Two decisions, kept apart: is the model worth a version, and is it better than the champion?"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

REJECT, REGISTER, PROMOTE = "reject", "register", "promote"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do with a model.

    Attributes:
      verdict: `reject`; `register` as a new version; or `promote`, which registers and makes it the champion.
      reasons: Every comparison that was made, in words and figures.
    """

    verdict: str
    reasons: tuple[str, ...]


def decide(
    metrics: Mapping[str, float],
    baseline: Mapping[str, float],
    *,
    min_accuracy: float,
    champion: Mapping[str, float] | None,
) -> Decision:
    """Judges by accuracy on one split.

    Args:
      metrics: Of the candidate.
      baseline: Of the answer that looks at nothing, on the same records; the candidate must beat it.
      min_accuracy: The threshold; reaching it is enough.
      champion: Metrics of the current champion on the same records, or None where there is none.
    """
    accuracy = metrics["accuracy"]
    reasons = []

    def holds(condition: bool, yes: str, no: str) -> bool:
        reasons.append(yes if condition else no)
        return condition

    threshold = holds(
        accuracy >= min_accuracy,
        f"accuracy {accuracy:.4f} reaches the threshold {min_accuracy:.4f}",
        f"accuracy {accuracy:.4f} is below the threshold {min_accuracy:.4f}",
    )
    useful = holds(
        accuracy > baseline["accuracy"],
        f"beats the majority class, {baseline['accuracy']:.4f}",
        f"does not beat the majority class, {baseline['accuracy']:.4f}",
    )
    better = holds(
        champion is None or accuracy > champion["accuracy"],
        "there is no champion yet" if champion is None else f"beats the champion, {champion['accuracy']:.4f}",
        f"does not beat the champion, {champion['accuracy']:.4f}" if champion else "",
    )
    if not (threshold and useful):
        return Decision(verdict=REJECT, reasons=tuple(reasons))
    return Decision(verdict=PROMOTE if better else REGISTER, reasons=tuple(reasons))
