"""What a study found, for people and programs: `study.html`, `study.md` and `study.csv` in its directory."""

import itertools
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import markupsafe

from components.evaluate.page import plots
from components.evaluate.page.frame import render_page
from components.templates import templates
from pipelines.studying import table
from pipelines.studying.table import Line
from trainer.base.files import write_text

PAGE, MARKDOWN, CSV = "study.html", "study.md", "study.csv"
_COLORS = (plots.FIRST, plots.SECOND, plots.THIRD, plots.FOURTH, plots.BAD)


def write(directory: pathlib.Path, asks: str, lines: Sequence[Line], mtbf_hours: Mapping[str, float]) -> str:
    """Writes the three files; returns the text of Markdown. `mtbf_hours`, between failures of a replica, are by cell."""
    lines = table.compared([line for own in table.by_cell(lines).values() for line in own])
    known = {
        "asks": asks,
        "computes_on": sorted({line["computes_on"] for line in lines}),
        "first": lines[0]["cell"],
        "tables": [list(table.rows(lines)), list(table.checkpoint_rows(lines, mtbf_hours))],
        "runs": lines,
    }
    text = templates("pipelines").get_template("study.txt").render(known)
    body = templates("pipelines").get_template("study.html").render(known, plots=_plots(lines))
    for name, content in ((MARKDOWN, text), (PAGE, render_page(asks, body)), (CSV, table.as_csv(lines))):
        write_text(directory / name, content)
    return text


def _plots(lines: Sequence[Line]) -> list[markupsafe.Markup]:
    fast = [line for line in lines if line["speed_up"]]
    ideals = sorted({line["replicas"] for line in lines})
    score = lines[0]["metric"]

    def speed_up(figure: Any) -> None:
        axes = figure.add_subplot(xlabel="replicas that train", xticks=ideals)
        axes.plot(ideals, [each / lines[0]["replicas"] for each in ideals], "--", color=plots.SOFT, label="ideal")
        _points(axes, fast, "replicas", "speed_up")

    def learnt(figure: Any) -> None:
        _points(figure.add_subplot(xlabel="time, s"), lines, "time_s", "score")

    found = [("Speed-up against the ideal", "speed_up", fast, speed_up)] if fast else []
    return [
        plots.plot(title, _told(each, key), draw)
        for title, key, each, draw in [*found, (f"{score} against time", "score", lines, learnt)]
    ]


def _points(axes: Any, lines: Sequence[Line], x: str, y: str) -> None:
    for (cell, own), color in zip(table.by_cell(lines).items(), itertools.cycle(_COLORS), strict=False):
        axes.plot([line[x] for line in own], [line[y] for line in own], "o", color=color, label=cell)
    axes.legend(fontsize=8)


def _told(lines: Sequence[Line], key: str) -> str:
    medians = {cell: statistics.median(line[key] for line in own) for cell, own in table.by_cell(lines).items()}
    return "; ".join(f"{cell} {value:.4g}" for cell, value in medians.items())
