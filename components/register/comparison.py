"""Versions as lines for people: two side by side, and tables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_ORIGIN = ("dataset", "fingerprint", "split", "code_version", "image_digest", "cluster", "run", "registered", "by")


def compare(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Metrics of two versions, and the settings and origins in which they differ, as lines."""
    heads = [f"version {facts['version']}" for facts in (one, other)]
    parts = {
        "metrics": rows(one["metrics"], other["metrics"], all_of_them=True),
        "settings that differ": rows(one.get("settings", {}), other.get("settings", {})),
        "origin where it differs": rows(*({key: facts.get(key) for key in _ORIGIN} for facts in (one, other))),
    }
    lines = [("", *heads)]
    for title, found in parts.items():
        lines += [(title, "", ""), *((f"  {name}", *values) for name, *values in found)]
    lines = table(lines)
    if (one["fingerprint"], one["split"]) != (other["fingerprint"], other["split"]):
        lines.append("the metrics are of different records")
    return "\n".join(lines)


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
