"""The gate: the rules for a model, the comparisons that they lead to, and the decision.

There are two decisions, kept apart: whether a model is worth a version in the registry, and whether
it is better than the champion. `gates/default.yaml` explains the keys of a gate file.

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
_RANGES = {"accuracy": (0, 1), "auc": (0, 1), "r2": (-math.inf, 1)}  # Others can be any number.


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
    """Rules that a model is judged by: the content of a gate file.

    Attributes:
      thresholds: By metric, the value that the model has to reach: at least this value, or at most
        if less of the metric is better.
      slices: By column, thresholds that each slice by a value of the column has to reach.
      slice_records: Least number of records of a slice that is judged.
      margin: Lead over the champion that has to be exceeded, in the unit of the ranking metric.
      latency_ms: Most milliseconds, as a median, in which a server may answer one record; None for
        no limit.
      confidence: How sure it has to be that a lead is not chance; None if any lead counts.
    """

    thresholds: _Thresholds = {}
    slices: dict[str, _Thresholds] = {}
    slice_records: Annotated[int, Field(strict=True, ge=1)] = 30
    margin: Annotated[_Number, Field(ge=0)] = 0.0
    latency_ms: Annotated[_Number, Field(gt=0)] | None = None
    confidence: Annotated[
        Annotated[_Number, Field(ge=0.5, lt=1)] | None, BeforeValidator(_none_is_null)
    ] = 0.95

    @classmethod
    def of(cls, content: str, thresholds: Mapping[str, float] | None = None) -> Self:
        """Parses the text of a gate file.

        Args:
          content: YAML; an empty text is the default gate.
          thresholds: Thresholds by metric that are added to those of the file, and win over them.

        Raises:
          UserError: If it is no valid gate. The message names the key, the value and what is
            allowed.
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
    """Returns the text of a gate file, after a check that it is a valid gate.

    The text of a file gets one more line break at its end.

    Args:
      file: Path of the file; or its text, recognised by a line break, which is returned unchanged.

    Raises:
      UserError: If the file cannot be read, or if its content is no valid gate.
    """
    if "\n" in file:
        Gate.of(file)
        return file
    with readable(file):
        # The line break at the end lets `load` recognise its own result as a text.
        content = pathlib.Path(file).read_bytes() + b"\n"
    try:
        Gate.of(text := content.decode())
    except ValueError as error:  # Includes UserError, and UnicodeDecodeError if it is not UTF-8.
        raise UserError(f"--gate {file}: {error}") from None
    return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """A metric of the candidate beside what it has to reach or to beat; None where nothing applies.

    Attributes:
      who: Kind of the comparison. One with `champion` decides about promotion; one with `baseline`,
        `threshold` or `slice` decides whether the model gets a version.
      passed: Whether the candidate passes; it never does with a NaN.
      words: The whole comparison as a text for people.
      metric: Name of the metric.
      candidate: The candidate's value.
      other: The other model's value.
      difference: How much better the candidate is; negative if it is worse.
      p: Probability that chance alone gives such a lead to one of two equally good models.
      threshold: Value that the candidate has to reach, or the lead that it has to exceed.
      records: Number of records that were measured.
    """

    who: str
    passed: bool
    words: str
    metric: str | None = None
    candidate: float | None = None
    other: float | None = None
    difference: float | None = None
    p: float | None = None
    threshold: float | None = None
    records: int | None = None


def decide(
    metric: str, comparisons: Sequence[Comparison], notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Decides about a model from all of its comparisons. Later steps only carry the decision out.

    Args:
      metric: Metric that models are ranked by.
      comparisons: All comparisons.
      notes: Further sentences for the reasons.

    Returns:
      `verdict`: `reject` if a comparison other than with the champion fails; `register` if only one
        with the champion fails, so that the model becomes a version; `promote` if none fails, so
        that the version becomes the champion. `why`: the words of the comparisons that decided,
        joined by semicolons: for `reject` the failed ones, except with the champion; else those
        with the champion, and before them that with the baseline if no metric was compared with a
        champion. `reasons`: a list of the words of all comparisons, and the notes. `comparisons`:
        all of them as dicts. `metric`: as it was given.
    """
    failed = [each for each in comparisons if not each.passed]
    if deciding := [each for each in failed if each.who != CHAMPION]:
        verdict = REJECT
    else:
        verdict = REGISTER if failed else PROMOTE
        champion = [each for each in comparisons if each.who == CHAMPION]
        # If no metric was compared with a champion, the lead over the baseline is the reason why
        # the model gets a version.
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
