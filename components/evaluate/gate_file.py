"""The gate file: what a model has to reach and to beat, and how surely; `gates/default.yaml` shows every key.

gate = Gate.load("gates/default.yaml")
Gate.load(gate.to_json()) == gate   # the step of the pipeline gets the content, for this machine's file is not where it runs
"""

import argparse
import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any, Self

from trainer.base.errors import UserError, readable, unknown
from trainer.base.flags import Kind, at_least, not_negative, positive
from trainer.base.strict_yaml import parse

_SURE = Kind(
    lambda text: None if text == "none" else float(text),
    lambda value: value is None or 0.5 <= value < 1,
    "a number from 0.5 to less than 1, such as 0.95, or none",
)
_THRESHOLD = Kind(float, math.isfinite, "a number")


def _key(kind: Kind, default: Any = None, *, levels: int = 0) -> Any:
    """A field that is a key: `levels` of mappings to values of a kind."""
    metadata = {"kind": kind, "levels": levels}
    if levels:
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gate:
    """What is asked of a model.

    Attributes:
      thresholds: What to reach, by metric: the least, or of an error the most.
      slices: The same of the records of each value of a column, by column and metric.
      slice_records: A value of a column that fewer records have is not judged.
      margin: What a lead over the champion has to exceed, in the unit of the metric that models are ranked by.
      confidence: With which a lead over champion and baseline has to be more than chance; None if the figures alone decide.
      max_latency_ms: For one record, the median.
      max_size_mb: Of the model's files, in 10^6 bytes.
    """

    thresholds: Mapping[str, float] = _key(_THRESHOLD, levels=1)
    slices: Mapping[str, Mapping[str, float]] = _key(_THRESHOLD, levels=2)
    slice_records: int = _key(at_least(1), 30)
    margin: float = _key(not_negative, 0.0)
    confidence: float | None = _key(_SURE, 0.95)
    max_latency_ms: float | None = _key(positive)
    max_size_mb: float | None = _key(positive)

    @classmethod
    def load(cls, given: str) -> Self:
        """Reads a file, or what `to_json` gave.

        Raises:
          UserError: If it is not there, or says what cannot be; it names file, place, value and what is allowed.
        """
        if given.startswith("{"):
            name, content = "--gate", given.encode()
        else:
            name = f"--gate {given}"
            with readable(name):
                content = pathlib.Path(given).read_bytes()
        fields = {field.name: field.metadata for field in dataclasses.fields(cls)}
        try:
            keys = _mapping(parse(content), "top level")
            for key in keys:
                if key not in fields:
                    raise unknown("key", key, fields)
            return cls(**{key: _read(value, key, **fields[key]) for key, value in keys.items()})
        except UserError as error:
            raise UserError(f"{name}: {error}") from None

    def to_json(self) -> str:
        """The keys that are not as they are by default, in a line."""
        changed = {key: value for key, value in dataclasses.asdict(self).items() if value != getattr(Gate(), key)}
        return json.dumps({key: "none" if value is None else value for key, value in changed.items()})


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
        raise UserError(f"{place}: {value!r} is no mapping; write 'key: value'")
    return {str(key): each for key, each in value.items()}
