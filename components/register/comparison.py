"""Texts side by side: tables of lines, and pairs of values that differ."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of texts as lines with columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def rows(
    one: Mapping[str, Any], other: Mapping[str, Any], *, all_of_them: bool = False
) -> Iterator[tuple[str, str, str]]:
    """Names with both values as texts, of what is not the same."""
    for name in sorted(one.keys() | other.keys()):
        if all_of_them or one.get(name) != other.get(name):
            yield name, text(one.get(name)), text(other.get(name))


def text(value: Any) -> str:
    """As people read it; a dash where there is nothing."""
    return "-" if value is None or value == "" else f"{value:.6g}" if isinstance(value, float) else str(value)
