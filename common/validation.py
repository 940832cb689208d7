"""Strict pydantic models whose errors are one line: place, value, allowed values, repair.

class Disk(Model):
    \"\"\"Boot disk of each replica.\"\"\"

    size_gb: Annotated[int, number(100, 64_000)] = 100
    \"\"\"Size in GB.\"\"\"

Disk.read({"size_gb": 200}).size_gb == 200
Disk.read({"size_gb": 2})   # UserError: size_gb: 2 is not a whole number from 100 to 64000; ...
"""

import re
import reprlib
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from common.errors import UserError, about, unknown

# Texts of messages, by pydantic's name of the error.
_REPAIRS = {
    "dict_type": "is not a mapping; write 'key: value'",
    "tuple_type": "is not a list; write a '- ' before each item",
    "string_type": "is not a text; put it in quotes, or remove the line",
}


class Model(BaseModel):
    """Frozen mapping of the keys that a subclass declares, each with a value.

    Null values are refused, and so are unknown keys, unless the subclass allows them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, document: Any) -> Any:
        if isinstance(document, cls):
            return document
        if not isinstance(document, Mapping):
            keys = ", ".join(cls.model_fields)
            raise UserError(f"{show(document)} is not a mapping; write 'key: value' of {keys}")
        for key in document:
            if cls.model_config["extra"] == "forbid" and key not in cls.model_fields:
                raise unknown("key", str(key), cls.model_fields)
        return document

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_null(cls, value: Any) -> Any:
        if value is None:
            raise UserError("nothing stands there; write a value, or remove the line")
        return value

    @classmethod
    def read(cls, document: Any) -> Self:
        """Returns the document as an instance.

        Raises:
          UserError: If the document is no mapping, or has an unknown or missing key or a wrong
            value. The message is about the first fault and begins with its place.
        """
        with about("top level"):
            cls._check_keys(document)  # type: ignore[operator]  # pydantic leaves it callable.
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise UserError(_message(error)) from None


def show(value: Any) -> str:
    """Returns a short text of a value, for messages; `nothing` for None."""
    return "nothing" if value is None else reprlib.repr(value)


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(duration: str) -> int:
    """Returns the seconds of a duration such as `90s`, `30m`, `1h` or `7d`, which must be valid."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]


def _check_duration(value: Any) -> str:
    if (
        not isinstance(value, str)
        or not re.fullmatch("[1-9][0-9]{0,8}[smhd]", value)
        or seconds(value) > seconds("30d")
    ):
        raise UserError(
            f"{show(value)} is not a duration of at most 30 days; write a number with s, m, h or "
            "d, as in '90s', '1h', '7d'"
        )
    return value


Duration = Annotated[str, BeforeValidator(_check_duration)]
Name = Annotated[str, Field(strict=True, pattern=r"\S")]


def number(low: int, high: int) -> BeforeValidator:
    """Returns the check of an `int` field from `low` to `high`, both included.

    The bounds may not be negative. The value has at most nine digits; it may also be a float
    without a fraction, or a text, as Google's JSON has it. Any other is a `UserError`.
    """

    def parse(value: Any) -> int:
        if not re.fullmatch(r"\d{1,9}(\.0)?", str(value)) or not low <= float(value) <= high:
            raise UserError(
                f"{show(value)} is not a whole number from {low} to {high}; write for example "
                f"{max(low, 1)}"
            )
        return int(float(value))

    bounded = Annotated[int, Field(ge=low, le=high)]  # For the JSON Schema.
    return BeforeValidator(parse, json_schema_input_type=bounded)


def _message(error: ValidationError) -> str:
    """Returns the first mistake in one line, which begins with its place if that is known."""
    fault = error.errors()[0]
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in fault["loc"])
    place, kind, value = "".join(steps).lstrip("."), fault["type"], fault["input"]
    if kind == "value_error":  # An error of the whole document has no place here; it names its own.
        return f"{place}: {fault['ctx']['error']}".removeprefix(": ")
    if kind == "missing":
        return f"{place}: missing; add '{fault['loc'][-1]}: VALUE'"
    if kind == "literal_error":
        allowed = [name.strip("'") for name in re.split(", | or ", fault["ctx"]["expected"])]
        return f"{place}: {unknown('value', str(value), allowed)}"
    repair = _REPAIRS.get(kind, f"cannot be used: {fault['msg']}; write another value")
    return f"{place}: {show(value)} {repair}"
