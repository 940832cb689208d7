"""Versions as lines for people: two side by side, and tables."""

from collections.abc import Mapping, Sequence
from typing import Any

_ORIGIN = ("dataset", "fingerprint", "split", "code_version", "image_digest", "cluster", "run", "registered", "by")


def compare(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Metrics of two versions, by their facts, and the settings and origins in which they differ, as lines."""
    origins = [{key: facts.get(key) for key in _ORIGIN} for facts in (one, other)]
    settings = [facts.get("settings", {}) for facts in (one, other)]
    rows = [("", f"version {one['version']}", f"version {other['version']}")]
    for title, (left, right) in (
        ("metrics", (one["metrics"], other["metrics"])),
        ("settings that differ", settings),
        ("origin where it differs", origins),
    ):
        rows.append((title, "", ""))
        for name in sorted(left.keys() | right.keys()):
            if title == "metrics" or left.get(name) != right.get(name):
                rows.append((f"  {name}", _text(left.get(name)), _text(right.get(name))))
    same = (one["fingerprint"], one["split"]) == (other["fingerprint"], other["split"])
    return "\n".join(table(rows) + ([] if same else ["the metrics are of different records"]))


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of texts as lines with columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _text(value: Any) -> str:
    return "-" if value is None or value == "" else f"{value:.6g}" if isinstance(value, float) else str(value)
