"""What a study found, for people and programs: `study.html`, `study.md` and `study.csv` in its directory."""

import csv
import io
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

PAGE = "study.html"
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
    # By replicas, of which all cells may have as many.
    fast = [line for line in lines if line["speed_up"] and len({other["replicas"] for other in lines}) > 1]
    plotted = [_plot("Speed-up against the ideal", fast, "replicas", "speed_up", "replicas that train")] if fast else []
    plotted.append(_plot(f"{lines[0]['metric']} against time", lines, "time_s", "score", "time, s"))
    body = templates("pipelines").get_template("study.html").render(known, plots=plotted)
    written = io.StringIO()
    writer = csv.DictWriter(written, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: round(v, 4) if isinstance(v, float) else v for k, v in line.items()} for line in lines)
    for name, content in (("study.md", text), (PAGE, render_page(asks, body)), ("study.csv", written.getvalue())):
        write_text(directory / name, content)
    return text


def _plot(title: str, lines: Sequence[Line], x: str, y: str, label: str) -> markupsafe.Markup:
    cells = table.by_cell(lines)

    def draw(figure: Any) -> None:
        axes = figure.add_subplot(xlabel=label)
        if y == "speed_up":
            ideals = sorted({line[x] for line in lines})
            axes.set_xticks(ideals)
            axes.plot(ideals, [each / lines[0][x] for each in ideals], "--", color=plots.SOFT, label="ideal")
        for (cell, own), color in zip(cells.items(), itertools.cycle(_COLORS), strict=False):
            axes.plot([line[x] for line in own], [line[y] for line in own], "o", color=color, label=cell)
        axes.legend(fontsize=8)

    told = (f"{cell} {statistics.median(line[y] for line in own):.4g}" for cell, own in cells.items())
    return plots.plot(title, "; ".join(told), draw)
