"""The gate file: what a model has to reach and to beat, and how surely. `gates/default.yaml` says what its keys mean.

Gate.of(text("gates/default.yaml")).thresholds["auc"]
"""

import argparse
import dataclasses
import math
import pathlib
import reprlib
from collections.abc import Mapping
from typing import Any, Self

from common.errors import UserError, readable, unknown
from common.flags import Kind, at_least, not_negative
from common.strict_yaml import parse

_THRESHOLD = Kind(float, math.isfinite, "a number")
_SURE = Kind(
    lambda text: None if text == "none" else float(text),
    lambda value: value is None or 0.5 <= value < 1,
    "a number from 0.5 to less than 1, such as 0.95, or none",
)

_RANGES = {"accuracy": (0, 1), "auc": (0, 1), "r2": (-math.inf, 1)}  # of other metrics any number


def _key(kind: Kind, default: Any = None) -> Any:
    return dataclasses.field(default=default, metadata={"kind": kind, "levels": 0})


def _keys(levels: int) -> Any:
    return dataclasses.field(default_factory=dict, metadata={"kind": _THRESHOLD, "levels": levels})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gate:
    """What is asked of a model: the keys of the file."""

    thresholds: Mapping[str, float] = _keys(1)  # by metric
    slices: Mapping[str, Mapping[str, float]] = _keys(2)  # by column and metric
    slice_records: int = _key(at_least(1), 30)
    margin: float = _key(not_negative, 0.0)
    confidence: float | None = _key(_SURE, 0.95)

    def __post_init__(self) -> None:
        for thresholds in (self.thresholds, *self.slices.values()):
            for metric, value in thresholds.items():
                low, high = _RANGES.get(metric, (-math.inf, math.inf))
                if not low <= value <= high:
                    raise UserError(f"a threshold of {metric}: {value:g} is not from {low:g} to {high:g}")

    @classmethod
    def of(cls, content: str) -> Self:
        """From the text of a file; a UserError names the place, the value and what is allowed."""
        document = parse(content.encode())
        fields = {field.name: field.metadata for field in dataclasses.fields(cls)}
        keys = _mapping({} if document is None else document, "top level")
        if strange := keys.keys() - fields:
            raise unknown("key", min(strange), fields)
        return cls(**{key: _read(value, key, **fields[key]) for key, value in keys.items()})


def text(given: str) -> str:
    """The text of a file, which a UserError refuses; a text itself, which has several lines, is returned as it is."""
    if "\n" in given:
        Gate.of(given)
        return given
    with readable(given):
        content = pathlib.Path(given).read_bytes() + b"\n"
    try:
        Gate.of(found := content.decode())
    except ValueError as error:  # not UTF-8 either
        raise UserError(f"--gate {given}: {error}") from None
    return found


def _read(value: Any, place: str, *, kind: Kind, levels: int) -> Any:
    if levels:
        parts = _mapping(value, place).items()
        return {key: _read(part, f"{place}.{key}", kind=kind, levels=levels - 1) for key, part in parts}
    try:
        return kind(str(value))
    except argparse.ArgumentTypeError as error:
        raise UserError(f"{place}: {error}") from None


def _mapping(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise UserError(f"{place}: {reprlib.repr(value)} is no mapping; write 'key: value'")
    return {str(key): each for key, each in value.items()}
