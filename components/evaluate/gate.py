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
    incomparable: str = "",
) -> Decision:
    """Judges by accuracy on one split.

    Args:
      metrics: Of the candidate.
      baseline: Of the answer that looks at nothing, on the same records; the candidate must beat it.
      min_accuracy: The threshold; reaching it is enough.
      champion: Metrics of the current champion on the same records, or None where there is none.
      incomparable: Why there are none although there is a champion: nothing is known to be better than it.
    """
    accuracy = metrics["accuracy"]
    reaches = accuracy >= min_accuracy
    useful = accuracy > baseline["accuracy"]
    reasons = [
        f"accuracy {accuracy:.4f} {'reaches' if reaches else 'is below'} the threshold {min_accuracy:.4f}",
        f"{'beats' if useful else 'does not beat'} the majority class, {baseline['accuracy']:.4f}",
    ]
    if incomparable:
        better = False
        reasons.append(f"cannot be compared with the champion: {incomparable}")
    elif champion is None:
        better = True
        reasons.append("there is no champion to compare with")
    else:
        better = accuracy > champion["accuracy"]
        reasons.append(f"{'beats' if better else 'does not beat'} the champion, {champion['accuracy']:.4f}")
    accepted = PROMOTE if better else REGISTER
    return Decision(verdict=accepted if reaches and useful else REJECT, reasons=tuple(reasons))
