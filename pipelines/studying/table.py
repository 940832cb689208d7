"""The runs of a study side by side: a line each for programs, and for people a row a cell with medians and ranges.

Of n repeats the range from the least to the greatest holds the true median with a probability of 1 - 2^(1-n).
"""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pipelines.studying.figures import WENT_TO
from trainer.job_dir.interval import advised_s, overhead

Line = Mapping[str, Any]  # the figures of a run, its `cell` and `repeat` among them
_LEAST_MORE = 5  # checkpoints by which two runs differ, so that their times tell what one costs
# Headings with the figure that they are of, and how it is written.
_COLUMNS = {
    "time, s": ("time_s", ",.1f"),
    "examples/s": ("examples_per_s", ",.0f"),
    "of each": ("examples_per_s_of_each", ",.0f"),
    "speed-up": ("speed_up", ".2f"),
    "efficiency": ("efficiency", ".0%"),
    "": ("score", ".4f"),  # by the name of the metric
    **{f"{kind}, s": (f"{kind}_s", ",.1f") for kind in WENT_TO if kind != "steps"},
    "machine-hours": ("machine_hours", ".4f"),
}


def compared(lines: Sequence[Line]) -> list[Line]:
    """Lines with ratios to the first cell's run of the same repeat, which ran next to it: machines drift."""
    first = {line["repeat"]: line for line in lines if line["cell"] == lines[0]["cell"]}
    return [{**line, **_ratios(line, first.get(line["repeat"], {}))} for line in lines]


def _ratios(line: Line, first: Line) -> dict[str, float | None]:
    speeds = line["examples_per_s"], first.get("examples_per_s")
    speed_up = speeds[0] / speeds[1] if all(speeds) else None
    found = {"speed_up": speed_up, "efficiency": speed_up and speed_up * first["replicas"] / line["replicas"]}
    equal = not line["restarts"] and all(line[name] == first.get(name) for name in ("steps", "replicas", "restarts"))
    more = line["checkpoints"] - first["checkpoints"] if equal else 0
    longer_s = sum(line[name] - first[name] for name in ("steps_s", "checkpoint_s")) if more else 0.0
    return found | {"checkpoint_cost_by_times_s": longer_s / more if more >= _LEAST_MORE else None}


def rows(lines: Sequence[Line]) -> Iterator[dict[str, str]]:
    """A row a cell, by the headings of the columns."""
    metrics = ", ".join(sorted({line["metric"] for line in lines}))
    for cell, own in by_cell(lines).items():
        counts = {"cell": cell, "runs": str(len(own)), "replicas": str(own[0]["replicas"])}
        yield counts | {name or metrics: shown(own, key, form) for name, (key, form) in _COLUMNS.items()}


def checkpoint_rows(lines: Sequence[Line], mtbf_hours: Mapping[str, float]) -> Iterator[dict[str, str]]:
    """What checkpoints cost in each cell that makes several, and how often to make them if a replica fails so often."""
    for cell, own in by_cell(lines).items():
        if min(line["checkpoints"] for line in own) > 1:
            hours = mtbf_hours[cell] / own[0]["vital"]
            cost_s = statistics.median(line["checkpoint_cost_s"] for line in own)
            every_s = advised_s(cost_s, hours * 3600)
            yield {
                "cell": cell,
                "checkpoints": shown(own, "checkpoints", ",.0f"),
                "one costs by the journal, s": shown(own, "checkpoint_cost_s", ".4f"),
                "by the difference of times, s": shown(own, "checkpoint_cost_by_times_s", ".4f"),
                "hours between failures of the job": f"{hours:g}",
                "advised interval, s": f"{every_s:,.1f}",
                "time lost then": f"{overhead(every_s, cost_s, hours * 3600):.2%}",
            }


def by_cell(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """The lines of each cell, in their order."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line["cell"], []).append(line)
    return found


def shown(lines: Iterable[Line], key: str, form: str) -> str:
    """The median of a figure, and of several values the range, as people read it; a dash where there is none."""
    values = [line[key] for line in lines if line[key] is not None]
    ends = f" ({min(values):{form}} to {max(values):{form}})" if len(values) > 1 else ""
    return f"{statistics.median(values):{form}}{ends}" if values else "-"
