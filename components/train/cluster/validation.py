"""Pydantic models that are strict, and whose errors are one line: place, value, allowed set, repair.

class Disk(Model):
    \"\"\"Boot disk of each replica.\"\"\"

    size_gb: number(100, 64_000) = 100
    \"\"\"Size in GB.\"\"\"

Disk.read({"size_gb": 200}).size_gb == 200
schema(Disk)["properties"]["size_gb"]["minimum"] == 100
"""

import functools
import re
import reprlib
from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticCustomError

from common.errors import UserError, unknown

_KEY_ERRORS = ("extra_forbidden", "invalid_key")
# By type of JSON Schema.
_REPAIRS = {
    "array": "is not a list; write a '- ' before each item",
    "string": "is not a text; put it in quotes, or remove the line",
}


class Model(BaseModel):
    """A mapping of known keys, each with a value."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_null(cls, value: Any) -> Any:
        if value is None:
            raise PydanticCustomError("null", "nothing")
        return value

    @classmethod
    def read(cls, document: Any) -> Self:
        """Returns the document as an instance.

        Raises:
          UserError: If something is wrong with the document, in one line.
        """
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise UserError(_message(cls, error)) from None


def show(value: Any) -> str:
    """Returns a value as messages show it: short."""
    return "nothing" if value is None else reprlib.repr(value)


def _integer(value: Any) -> Any:
    """Returns integers that became floats, or text as in Google's JSON, as integers, and all else as it is."""
    return int(float(value)) if re.fullmatch(r"\d{1,9}(\.0)?", str(value)) else value


_DURATION = "[1-9][0-9]{0,8}[smhd]"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(duration: str) -> int:
    """Returns the seconds of a duration such as `90s`, `30m`, `1h` or `7d`."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]


def _duration(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(_DURATION, value) or seconds(value) > seconds("30d"):
        raise ValueError(
            f"{show(value)} is not a duration of at most 30 days; write a number with s, m, h or d, as in '90s', '1h', '7d'"
        )
    return value


Duration = Annotated[str, BeforeValidator(_duration), Field(json_schema_extra={"pattern": f"^{_DURATION}$"})]
Name = Annotated[str, Field(strict=True, pattern=r"\S")]


def number(low: int, high: int) -> Any:
    """Returns the type of an integer between two bounds."""
    return Annotated[int, Field(strict=True, ge=low, le=high), BeforeValidator(_integer)]


@functools.cache
def schema(model: type[Model]) -> dict[str, Any]:
    """Returns the JSON Schema of the documents that a model reads."""
    return model.model_json_schema(schema_generator=_SchemaWithoutNull)


def _message(model: type[Model], error: ValidationError) -> str:
    """Returns what is wrong in one line; a misspelt key comes first, as it may be the one that is missing."""
    fault = min(error.errors(), key=lambda each: each["type"] not in _KEY_ERRORS)
    kind, value, location = fault["type"], fault["input"], list(fault["loc"])
    key = str(location.pop()) if kind in _KEY_ERRORS else ""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    place = "".join(steps).lstrip(".")
    if kind == "value_error":  # A validator's; that of the root names the place itself.
        return f"{place}: {fault['ctx']['error']}".removeprefix(": ")
    node = _node(schema(model), location)
    place = place or "top level"
    if key:
        return f"{place}: {unknown('key', key, node['properties'])}"
    if kind == "missing":
        return f"{place}: missing; add '{location[-1]}: {node['examples'][0]}'"
    if kind == "literal_error":
        return f"{place}: {unknown('value', str(value), node['enum'])}"
    return f"{place}: {show(value)} {_repair(node)}"


def _repair(node: dict[str, Any]) -> str:
    if node.get("type") == "object":
        return f"is not a mapping; write 'key: value' of {', '.join(node['properties'])}"
    if "minimum" in node:
        low, high = node["minimum"], node["maximum"]
        return f"is not a whole number from {low} to {high}; write for example {max(low, 1)}"
    return _REPAIRS.get(node.get("type"), "stands there; write a value, or remove the line")


def _node(root: dict[str, Any], location: Iterable[str | int]) -> dict[str, Any]:
    """Returns the part of a schema that describes a place in the document."""
    node = root
    for step in location:
        node = node["items"] if isinstance(step, int) else node["properties"][step]
        if "$ref" in node:
            node = {**root["$defs"][node["$ref"].rpartition("/")[2]], **node}
    return node


class _SchemaWithoutNull(GenerateJsonSchema):
    """Schema without titles that repeat the keys' names, and without null: an optional key is left out."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def nullable_schema(self, schema: Any) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> dict[str, Any]:
        return {key: value for key, value in super().default_schema(schema).items() if value is not None}
