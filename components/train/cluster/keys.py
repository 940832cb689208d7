"""The keys of a file, described once: the description reads them, writes them and is the schema for editors.

Synopsis:

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Disk:
        \"\"\"Boot disk of each replica.\"\"\"

        size_gb: Annotated[int, Key(doc="Size in GB.", low=100)] = 100

    disk = read(Disk, {"size_gb": 200}, "disk")
    write(disk) == {"size_gb": 200}
    schema(Disk)["properties"]["size_gb"]["minimum"] == 100
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterable
from typing import Any

from components.train.cluster.checks import duration, fields, integer, one_of, text
from trainer.base.errors import UserError

_DURATION = "_s"  # An attribute so named holds seconds; in the file it has no suffix and is written as '1h'.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Key:
    """One key of a file.

    Attributes:
      doc: What it means.
      low: Least number.
      high: Greatest number.
      choices: Allowed texts.
      names: Texts that an editor offers; the reader leaves it to the owner of the table to check them.
      example: How one that is missing is added.
      attribute: Name of the dataclass's field.
      type: What it holds: a dataclass, `int` or `str`.
      required: Whether it must be there.
      default: Value without it.
    """

    doc: str
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    names: Callable[[], Iterable[str]] | None = None
    example: str = ""
    attribute: str = ""
    type: type = str
    required: bool = False
    default: Any = None

    @property
    def name(self) -> str:
        """As the file writes it."""
        return self.attribute.removesuffix(_DURATION)

    def read(self, value: Any, where: str) -> Any:
        """The attribute's value from the file's."""
        if dataclasses.is_dataclass(self.type):
            return read(self.type, value, where)
        if self.name != self.attribute:
            return duration(value, where)
        if self.type is int:
            return integer(value, where, self.low, self.high)
        return one_of(value, where, self.choices) if self.choices else text(value, where)

    def write(self, value: Any) -> Any:
        """The file's value from the attribute's."""
        if dataclasses.is_dataclass(self.type):
            return write(value)
        return f"{value}s" if self.name != self.attribute else value

    def schema(self) -> dict[str, Any]:
        """Of the value, as JSON Schema."""
        if dataclasses.is_dataclass(self.type):
            return {**schema(self.type), "description": self.doc}
        found: dict[str, Any] = {"description": self.doc}
        if self.name != self.attribute:
            found |= {"type": "string", "pattern": "^[1-9][0-9]{0,8}[smhd]$"}
        elif self.type is int:
            found |= {"type": "integer", "minimum": self.low, "maximum": self.high}
        else:
            found |= {"type": "string", "enum": sorted(self.names()) if self.names else list(self.choices)}
        found["default"] = self.default
        return {name: value for name, value in found.items() if value is not None}


@functools.cache
def keys(cls: type) -> tuple[Key, ...]:
    """Those of a dataclass whose fields are annotated with them."""
    hints = typing.get_type_hints(cls, include_extras=True)
    found = []
    for field in dataclasses.fields(cls):
        hint, key = typing.get_args(hints[field.name])
        kind = next((each for each in typing.get_args(hint) if each is not type(None)), hint)
        required = field.default is dataclasses.MISSING
        default = None if required else field.default
        found.append(dataclasses.replace(key, attribute=field.name, type=kind, required=required, default=default))
    return tuple(found)


def read(cls: type, value: Any, where: str = "") -> Any:
    """An instance of `cls` from a mapping; `where` is its place in the file.

    Raises:
      UserError: If a key is unknown, missing, or has a value that cannot be.
    """
    known = {each.name: each for each in keys(cls)}
    values = fields(value, where or "top level", known)
    prefix = f"{where}." if where else ""
    for name, each in known.items():
        if each.required and name not in values:
            raise UserError(f"{prefix}{name}: missing; add {each.example}")
    return cls(**{known[name].attribute: known[name].read(each, f"{prefix}{name}") for name, each in values.items()})


def write(instance: Any) -> dict[str, Any]:
    """The mapping that `read` makes `instance` of, every default filled in."""
    values = ((each, getattr(instance, each.attribute)) for each in keys(type(instance)))
    return {each.name: each.write(value) for each, value in values if value is not None}


def schema(cls: type) -> dict[str, Any]:
    """JSON Schema of the mapping."""
    required = [each.name for each in keys(cls) if each.required]
    return {
        "type": "object",
        "properties": {each.name: each.schema() for each in keys(cls)},
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }
