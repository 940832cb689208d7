"""Checks of single values of a file: each returns the value, or refuses it with its place and the repair.

Synopsis:

    values = fields(document["worker"], "worker", ("machine", "replicas"))
    replicas = integer(values["replicas"], "worker.replicas", 1)
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Collection, Mapping
from typing import Any

from trainer.base.errors import UserError, unknown

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def fields(value: Any, where: str, allowed: Collection[str]) -> dict[str, Any]:
    """A copy of the mapping `value`, if it is one and has no other keys than `allowed`."""
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: {show(value)} is not a mapping; write 'key: value' of {', '.join(allowed)}")
    for key in value:
        if key not in allowed:
            raise UserError(f"{where}: {unknown('key', str(key), allowed)}")
    return dict(value)


def integer(value: Any, where: str, low: int, high: int | None = None) -> int:
    """A whole number of at least `low`; one that became a float on its way is an integer again."""
    whole = not isinstance(value, bool) and (
        isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    )
    if not whole or value < low or (high is not None and value > high):
        bounds = f"from {low} to {high}" if high else f"of at least {low}"
        raise UserError(f"{where}: {show(value)} is not a whole number {bounds}; write for example {max(low, 1)}")
    return int(value)


def text(value: Any, where: str) -> str:
    """A text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{where}: {show(value)} is not a name; write a word, or remove the line")
    return value


def one_of(value: Any, where: str, allowed: Collection[str]) -> str:
    """One of the texts in `allowed`."""
    if text(value, where) not in allowed:
        raise UserError(f"{where}: {unknown('value', value, allowed)}")
    return value


def duration(value: Any, where: str) -> int:
    """Seconds of a text such as `90s`, `30m`, `1h` or `7d`."""
    match = re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", value) if isinstance(value, str) else None
    if not match:
        raise UserError(
            f"{where}: {show(value)} is not a duration; write a number with s, m, h or d, as in '90s', '30m', '1h'"
        )
    return int(match[1]) * _SECONDS[match[2]]


def show(value: Any) -> str:
    """`value` as a message shows it: short."""
    return "nothing" if value is None else reprlib.repr(value)
