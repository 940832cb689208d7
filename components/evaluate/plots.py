"""Plots of an evaluation and of a job's journals, as SVG inside a page, and in words.

def draw(figure):
    figure.add_subplot().plot([1, 2], [0.9, 0.4], color=FIRST)

plot("Loss", "It falls from 0.9 to 0.4 in 2 steps.", draw)
"""

import base64
import collections
import io
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import markupsafe

from components.evaluate.attempts import Journals

# They can be read on white and on black, as the style's can.
FIRST, SECOND, SOFT = "#2f9772", "#5686d8", "#808a97"
_STYLE = pathlib.Path(__file__).with_name("templates") / "plots.mplstyle"
_SIZE = 3.8, 2.3  # of a figure, in inches at the page's own scale
_SHARES = (-0.02, 1.02)
# What an event has besides the loss, the metrics of the task, and the learning rate.
_NOT_MEASURED = {"event", "step", "time", "seconds", "best", "examples_per_s", "replica_examples_per_s"}
_FALLS = 30.0  # what falls by so much is seen on a logarithmic axis only


def plot(title: str, description: str, draw: Callable[[Any], object]) -> markupsafe.Markup:
    """Returns what `draw` draws on an empty figure.

    Args:
      title: Shown above the plot.
      description: The figures in words.
      draw: Takes a matplotlib figure.
    """
    import matplotlib  # takes half a second, which only who writes a page has
    from matplotlib.figure import Figure

    style = matplotlib.rc_params_from_file(_STYLE, use_default_template=False)
    with matplotlib.rc_context({**style, "svg.hashsalt": title}):  # equal plots have equal bytes
        figure, svg = Figure(figsize=_SIZE), io.BytesIO()
        # The same margins for all: to find the least takes as long again as to draw.
        figure.subplots_adjust(left=0.16, right=0.97, top=0.91, bottom=0.2)
        draw(figure)
        figure.savefig(svg, format="svg", metadata={"Date": None})
    html = '<figure class="chart"><figcaption>{}</figcaption><img alt="{}" src="data:image/svg+xml;base64,{}"></figure>'
    return markupsafe.Markup(html).format(title, description, base64.b64encode(svg.getvalue()).decode())


def evaluation_plots(e: Mapping[str, Any]) -> list[markupsafe.Markup]:
    """Returns those plots that an evaluation (the content of `evaluation.json`) has the figures for."""
    figures, names, plots = e["figures"], e["class_names"], []
    if calibration := figures.get("calibration"):
        bins = [(each["confidence"], each["accuracy"]) for each in calibration["bins"]]
        words = f"Of answers that are this sure, so many are right; the expected calibration error is {calibration['ece']:.4f}."
        plots.append(_shares("calibration", words, ("confidence", "share that is right"), bins, marker="o"))
    if roc := figures.get("roc"):
        words = f"Share of {names[1]} that is found, against the share of {names[0]} that is taken for it."
        plots.append(_shares("ROC curve", words, ("false positives", "true positives"), roc))
    if curve := figures.get("precision_recall"):
        words = f"Precision against recall of {names[1]}; the average precision is {curve['average_precision']:.4f}."
        plots.append(_shares("precision and recall", words, ("recall", "precision"), curve["points"], diagonal=()))
    return plots


def learning_curves(journals: Journals) -> list[markupsafe.Markup]:
    """Returns a plot of the loss, of each metric, and of the learning rate by the step; none before there are two steps."""
    training, validation = (_measured(journals, event) for event in ("step", "evaluation"))
    if len(training["loss"]) < 2:
        return []
    exported = [event["exported_step"] for event in journals.lasting("export")][-1:]
    names = sorted(training | validation, key=lambda name: (name == "learning_rate", name != "loss", name))
    return [_by_step(name, {"training": training[name], "validation": validation[name]}, exported) for name in names]


def _measured(journals: Journals, event: str) -> dict[str, list[tuple[int, float]]]:
    """Returns pairs of step and value of what the events of that kind measured, by name, where they are numbers."""
    lines = collections.defaultdict(list)
    for each in journals.lasting(event):
        for name in each.keys() - _NOT_MEASURED:
            if each[name] is not None and math.isfinite(each[name]):
                lines[name].append((each["step"], each[name]))
    return lines


def _by_step(name: str, lines: Mapping[str, list[tuple[int, float]]], marked: Sequence[int]) -> markupsafe.Markup:
    """Plots lines by their labels, with those steps marked."""
    values = [value for line in lines.values() for _, value in line]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot(xlabel="step")
        if name.endswith("loss") and min(values) > 0 and max(values) > _FALLS * min(values):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("")
        for line, color in zip(lines.values(), (FIRST, SECOND), strict=True):
            if line:
                marker = "o" if len(line) < 30 else ""
                axes.plot(*zip(*line, strict=True), color=color, marker=marker)
        if name.endswith("learning_rate"):
            axes.set_ylim(bottom=0)
        for step in marked:
            axes.axvline(step, color=SOFT, linestyle="--", linewidth=1)

    ends = [(label, *line[0], *line[-1]) for label, line in lines.items() if line]
    words = "; ".join(
        f"{label} {a:.4g} at step {first:,}, {b:.4g} at step {last:,}" for label, first, a, last, b in ends
    )
    title = name.replace("_", " ")
    return plot(title, f"{title}: {words}", draw)


def _shares(
    title: str,
    description: str,
    labels: tuple[str, str],
    points: Sequence[Sequence[float]],
    *,
    marker: str = "",
    diagonal: Sequence[float] = (0, 1),
) -> markupsafe.Markup:
    """Plots a line through points with x and y, both shares, over a diagonal; what else a point has is not drawn."""

    def draw(figure: Any) -> None:
        axes = figure.add_subplot(xlabel=labels[0], ylabel=labels[1], xlim=_SHARES, ylim=_SHARES)
        axes.plot([point[0] for point in points], [point[1] for point in points], marker=marker)
        axes.plot(diagonal, diagonal, color=SOFT, linestyle="--", linewidth=1)

    return plot(title, description, draw)
