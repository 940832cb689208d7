"""Two decisions, kept apart: is the model worth a version, and is it better than the champion?

    decide("auc", comparisons)["verdict"]

Every comparison is data with its words; the verdict is which of them have passed, and nothing later decides again.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

REJECT, REGISTER, PROMOTE = "reject", "register", "promote"
CHAMPION = "champion"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """A figure of the candidate beside what it has to reach or to beat; what does not apply is None.

    Attributes:
      who: `champion`, which decides about promotion; all others about a version: `baseline`, `threshold`, `slice`, `cost`.
      passed: Whether it holds. What is no number never does.
      words: All of it in a sentence.
      metric: What is compared.
      candidate: Its value.
      other: That of what it is compared with.
      difference: By how much the candidate is better.
      interval: Of the difference, at the gate's confidence: its lower end is above the margin where the lead is more than chance.
      p: How likely chance alone would show such a lead.
      threshold: What has to be reached; of a lead what it has to exceed.
      records: On which both were measured.
      records_needed: To see a difference of half a point, or of half a percent of an error, four times out of five.
    """

    who: str
    passed: bool
    words: str
    metric: str | None = None
    candidate: float | None = None
    other: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    threshold: float | None = None
    records: int | None = None
    records_needed: int | None = None


def decide(metric: str, comparisons: Sequence[Comparison], notes: Sequence[str] = ()) -> dict[str, Any]:
    """What all of a model's comparisons come to.

    Args:
      metric: By which models are ranked.
      comparisons: All that were made.
      notes: What else there is to say.

    Returns:
      The `metric`. The `verdict`: `reject`; `register` as a new version; or `promote`, which registers and makes it the
      champion. `why`: the comparisons that decided so, in words. `comparisons`, as data. `reasons`: the words of all, and the notes.
    """
    failed = [each for each in comparisons if not each.passed]
    if deciding := [each for each in failed if each.who != CHAMPION]:
        verdict = REJECT
    else:
        verdict = REGISTER if failed else PROMOTE
        deciding = [each for each in comparisons if each.who == CHAMPION]
    return {
        "metric": metric,
        "verdict": verdict,
        "why": "; ".join(each.words for each in deciding),
        "comparisons": [dataclasses.asdict(each) for each in comparisons],
        "reasons": [*(each.words for each in comparisons), *notes],
    }
