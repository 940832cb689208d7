"""The gate: its file, the comparisons that it takes, and two decisions, kept apart.

The decisions are whether a model is worth a version, and whether it is better than the champion.
`gates/default.yaml` says what the keys of a file mean.

Gate.of(load("gates/default.yaml")).thresholds["auc"]
decide("auc", comparisons)["verdict"]
"""

import dataclasses
import math
import pathlib
import reprlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from common.documents import parse_yaml
from common.errors import UserError, readable, unknown

REJECT, REGISTER, PROMOTE = "reject", "register", "promote"
OUTCOMES = {REJECT: "rejected", REGISTER: "registered, and not promoted", PROMOTE: "promoted"}
CHAMPION, BASELINE = "champion", "baseline"
_RANGES = {"accuracy": (0, 1), "auc": (0, 1), "r2": (-math.inf, 1)}  # of other metrics any number


def _in_range(thresholds: dict[str, float]) -> dict[str, float]:
    for metric, value in thresholds.items():
        low, high = _RANGES.get(metric, (-math.inf, math.inf))
        if not low <= value <= high:
            raise ValueError(f"a threshold of {metric}: {value:g} is not from {low:g} to {high:g}")
    return thresholds


def _none_is_null(value: Any) -> Any:
    return None if value == "none" else value


_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Thresholds = Annotated[dict[str, _Number], AfterValidator(_in_range)]


class Gate(BaseModel, extra="forbid", frozen=True, coerce_numbers_to_str=True):
    """What a model has to reach and to beat, and how surely: the keys of the file."""

    thresholds: _Thresholds = {}  # by metric
    slices: dict[str, _Thresholds] = {}  # by column
    slice_records: Annotated[int, Field(strict=True, ge=1)] = 30
    margin: Annotated[_Number, Field(ge=0)] = 0.0
    latency_ms: Annotated[_Number, Field(gt=0)] | None = None
    confidence: Annotated[
        Annotated[_Number, Field(ge=0.5, lt=1)] | None, BeforeValidator(_none_is_null)
    ] = 0.95

    @classmethod
    def of(cls, content: str, thresholds: Mapping[str, float] | None = None) -> Self:
        """Reads the text of a file; `thresholds` go before its own.

        Raises:
          UserError: Names the place, the value and what is allowed.
        """
        document = parse_yaml(content.encode())
        try:
            gate = cls.model_validate({} if document is None else document)
            return cls.model_validate(
                {**dict(gate), "thresholds": {**gate.thresholds, **(thresholds or {})}}
            )
        except ValidationError as error:
            fault = min(error.errors(), key=lambda each: each["loc"])
        if fault["type"] == "extra_forbidden":
            raise unknown("key", str(fault["loc"][-1]), cls.model_fields)
        if fault["type"] == "value_error":
            raise UserError(str(fault["ctx"]["error"]))
        place = ".".join(map(str, fault["loc"])) or "top level"
        raise UserError(
            f"{place}: {reprlib.repr(fault['input'])} {fault['msg'].removeprefix('Input ')}"
        )


def load(file: str) -> str:
    """Returns the text of a gate file, which is checked; a text itself, which has several lines, as it is.

    Raises:
      UserError: The file cannot be read, or is no gate.
    """
    if "\n" in file:
        Gate.of(file)
        return file
    with readable(file):
        content = pathlib.Path(file).read_bytes() + b"\n"
    try:
        Gate.of(text := content.decode())
    except ValueError as error:  # not UTF-8 either
        raise UserError(f"--gate {file}: {error}") from None
    return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """A figure of the candidate beside what it has to reach or to beat; what does not apply is None."""

    # `champion` decides about promotion; `baseline`, `threshold` and `slice` about a version
    who: str
    passed: bool  # what is no number never does
    words: str  # all of it
    metric: str | None = None
    candidate: float | None = None
    other: float | None = None  # the other one's figure
    difference: float | None = None  # by how much the candidate is better
    p: float | None = None  # how likely chance alone would show such a lead, of equally good models
    threshold: float | None = (
        None  # what the candidate has to reach; of a lead, what it has to exceed
    )
    records: int | None = None  # on which both were measured


def decide(
    metric: str, comparisons: Sequence[Comparison], notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns what all of a model's comparisons come to; nothing later decides again.

    Returns:
      The `metric` that models are ranked by. The `verdict`: `reject`; `register` as a new version;
        or `promote`, which registers
      and makes it the champion. `why`: the comparisons that decided, in words. All `comparisons`,
        and their words and the
      notes as `reasons`.
    """
    failed = [each for each in comparisons if not each.passed]
    if deciding := [each for each in failed if each.who != CHAMPION]:
        verdict = REJECT
    else:
        verdict = REGISTER if failed else PROMOTE
        champion = [each for each in comparisons if each.who == CHAMPION]
        # Without figures of a champion, what the baseline's are says why there is a version.
        beaten = (
            []
            if any(each.metric for each in champion)
            else [e for e in comparisons if e.who == BASELINE]
        )
        deciding = [*beaten, *champion]
    return {
        "metric": metric,
        "verdict": verdict,
        "why": "; ".join(each.words for each in deciding),
        "comparisons": [dataclasses.asdict(each) for each in comparisons],
        "reasons": [*(each.words for each in comparisons), *notes],
    }
