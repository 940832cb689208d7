"""Reads a document with a pydantic model; what is wrong with it is told in one line: place, value, allowed set, repair.

class Disk(Model, use_attribute_docstrings=True):
    \"\"\"Boot disk of each replica.\"\"\"

    size_gb: number(100, 64_000) = 100
    \"\"\"Size in GB.\"\"\"

read(Disk, {"size_gb": 200}, "disk").size_gb == 200
schema(Disk)["properties"]["size_gb"]["minimum"] == 100
"""

import functools
import reprlib
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticCustomError

from common.errors import UserError, unknown

_MANY = 30  # Names that nobody would read in a line.
_A_FILE = {"may_be_empty": False}
_STRANGE_KEYS = ("extra_forbidden", "invalid_key")
# By type of JSON Schema: what a value of another type is told.
_REPAIRS = {
    "boolean": "is neither true nor false; write true, or remove it",
    "array": "is not a list; write a '- ' before each item",
    "string": "is not a name; write a word, or remove the line",
}
Name = Annotated[str, Field(strict=True, pattern=r"\S")]


class Model(BaseModel):
    """A mapping of known keys. One that stands in a file has a value there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _has_a_value(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None and info.context:
            raise PydanticCustomError("empty", "nothing")
        return value


_M = TypeVar("_M", bound=Model)


def number(low: int, high: int) -> Any:
    """The type of a whole number; one that became a float on its way is an integer again."""
    return Annotated[int, Field(strict=True, ge=low, le=high), BeforeValidator(_whole)]


def read(model: type[_M], document: Any, where: str = "") -> _M:
    """The document as an instance of the model, or a `UserError` that tells what is wrong; `where` is its place in a file."""
    try:
        return model.model_validate(document, context=_A_FILE)
    except ValidationError as error:
        raise UserError(_told(schema(model), error, where)) from None


@functools.cache
def schema(model: type[Model]) -> dict[str, Any]:
    """JSON Schema of the documents that the model reads."""
    return model.model_json_schema(schema_generator=_Plain)


def show(value: Any) -> str:
    """`value` as a message shows it: short."""
    return "nothing" if value is None else reprlib.repr(value)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _told(root: dict[str, Any], error: ValidationError, where: str) -> str:
    """The fault that is told first; a key that is misspelt may also be one that is missing."""
    fault = min(error.errors(include_url=False), key=lambda each: each["type"] not in _STRANGE_KEYS)
    kind, value, place = fault["type"], fault["input"], list(fault["loc"])
    strange = str(place.pop()) if kind in _STRANGE_KEYS else ""
    node = _node(root, place)
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    path = (where + path).lstrip(".")
    if kind == "value_error":  # In the words of our validator; that of the whole document names the place itself.
        return f"{path}: {fault['ctx']['error']}" if place else str(fault["ctx"]["error"])
    path = path or "top level"
    if strange:
        return f"{path}: {unknown('key', strange, node['properties'])}"
    if kind == "missing":
        known = node.get("enum", ())
        known = f" (known: {', '.join(known)})" if 0 < len(known) < _MANY else ""
        return f"{path}: missing; add '{place[-1]}: {node['examples'][0]}'{known}"
    if kind == "literal_error" and isinstance(value, str) and value.strip():
        return f"{path}: {unknown('value', value, node['enum'])}"
    return f"{path}: {show(value)} {_repair(node)}"


def _repair(node: dict[str, Any]) -> str:
    if node.get("type") == "object":
        return f"is not a mapping; write 'key: value' of {', '.join(node['properties'])}"
    if "minimum" in node:
        low, high = node["minimum"], node["maximum"]
        return f"is not a whole number from {low} to {high}; write for example {max(low, 1)}"
    return _REPAIRS.get(node.get("type"), "stands there; write a value, or remove the line")


def _node(root: dict[str, Any], place: Iterable[str | int]) -> dict[str, Any]:
    """What the schema says of a place in the document."""
    node = root
    for step in place:
        node = node["items"] if isinstance(step, int) else node["properties"][step]
        if "$ref" in node:
            node = {**root["$defs"][node["$ref"].rpartition("/")[2]], **node}
    return node


class _Plain(GenerateJsonSchema):
    """Without titles that repeat the keys' names, and without null: a key that is not meant is left out."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def nullable_schema(self, schema: Any) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> dict[str, Any]:
        found = super().default_schema(schema)
        return {key: value for key, value in found.items() if key != "default" or value is not None}
