"""Two versions side by side, and versions and their history as lines for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_ORIGIN = ("dataset", "fingerprint", "split", "code_version", "image_digest", "run", "registered", "by")
_SHOWN = 16  # characters of a digest


def compare(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Metrics of two versions, and the settings and origins in which they differ, as lines."""
    heads = [f"version {facts['version']}" for facts in (one, other)]
    parts = {
        "metrics": _rows(one["metrics"], other["metrics"], all_of_them=True),
        "settings that differ": _rows(one.get("settings", {}), other.get("settings", {})),
        "origin where it differs": _rows(
            *({key: facts.get(key) for key in (*_ORIGIN, "cluster")} for facts in (one, other))
        ),
    }
    rows = [("", *heads)]
    for title, found in parts.items():
        rows += [(title, "", ""), *((f"  {name}", *values) for name, *values in found)]
    lines = table(rows)
    if (one["fingerprint"], one["split"]) != (other["fingerprint"], other["split"]):
        lines.append("the metrics are of different records")
    return "\n".join(lines)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of texts as lines with columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _rows(
    one: Mapping[str, Any], other: Mapping[str, Any], *, all_of_them: bool = False
) -> Iterator[tuple[str, str, str]]:
    for name in sorted(one.keys() | other.keys()):
        if all_of_them or one.get(name) != other.get(name):
            yield name, _text(one.get(name)), _text(other.get(name))


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None or value == "":
        return "-"
    text = str(value)
    return f"{text[:_SHOWN]}..." if len(text) == 64 and text.isalnum() else text
