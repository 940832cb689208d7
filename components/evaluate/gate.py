"""Two decisions, kept apart: is the model worth a version, and is it better than the champion?

decide("auc", comparisons)["verdict"]
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

REJECT, REGISTER, PROMOTE = "reject", "register", "promote"
TOLD = {REJECT: "rejected", REGISTER: "registered, and not promoted", PROMOTE: "promoted"}
CHAMPION, BASELINE = "champion", "baseline"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """A figure of the candidate beside what it has to reach or to beat; what does not apply is None."""

    who: str  # `champion` decides about promotion; `baseline`, `threshold` and `slice` about a version
    passed: bool  # what is no number never does
    words: str  # all of it
    metric: str | None = None
    candidate: float | None = None
    other: float | None = None  # the other one's figure
    difference: float | None = None  # by how much the candidate is better
    p: float | None = None  # how likely chance alone would show such a lead, of equally good models
    threshold: float | None = None  # what the candidate has to reach; of a lead, what it has to exceed
    records: int | None = None  # on which both were measured
    records_needed: int | None = None  # to see half a point (half a percent of an error) four times out of five


def decide(metric: str, comparisons: Sequence[Comparison], notes: Sequence[str] = ()) -> dict[str, Any]:
    """What all of a model's comparisons come to; nothing later decides again.

    Returns:
      The `metric` that models are ranked by. The `verdict`: `reject`; `register` as a new version; or `promote`, which registers
      and makes it the champion. `why`: the comparisons that decided, in words. All `comparisons`, and their words and the
      notes as `reasons`.
    """
    failed = [each for each in comparisons if not each.passed]
    if deciding := [each for each in failed if each.who != CHAMPION]:
        verdict = REJECT
    else:
        verdict = REGISTER if failed else PROMOTE
        champion = [each for each in comparisons if each.who == CHAMPION]
        # Without figures of a champion, what the baseline's are says why there is a version.
        beaten = [] if any(each.metric for each in champion) else [e for e in comparisons if e.who == BASELINE]
        deciding = [*beaten, *champion]
    return {
        "metric": metric,
        "verdict": verdict,
        "why": "; ".join(each.words for each in deciding),
        "comparisons": [dataclasses.asdict(each) for each in comparisons],
        "reasons": [*(each.words for each in comparisons), *notes],
    }
