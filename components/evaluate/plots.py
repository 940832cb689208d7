"""Plots of an evaluation and of a job's journals, as SVG inside a page, and in words.

plot("loss", "It falls from 0.9 to 0.4 in 2 steps.", [[(1, 0.9), (2, 0.4)]], xlabel="step")
"""

import base64
import collections
import io
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import markupsafe

from components.evaluate.attempts import Journals

_STYLE = pathlib.Path(__file__).with_name("templates") / "plots.mplstyle"
_SIZE = 3.8, 2.3  # of a figure, in inches at the page's own scale
_SHARES = {"xlim": (-0.02, 1.02), "ylim": (-0.02, 1.02)}
_DIAGONAL = [[(0, 0), (1, 1)]]
# What an event has besides the loss, the metrics of the task, and the learning rate.
_NOT_MEASURED = {"event", "step", "time", "seconds", "best", "examples_per_s", "replica_examples_per_s"}
_FALLS = 30.0  # what falls by so much is seen on a logarithmic axis only
Line = Sequence[Sequence[float]]  # points of x and y; what else a point has is not drawn


def plot(
    title: str, description: str, lines: Sequence[Line], dashed: Sequence[Line] = (), **axes: Any
) -> markupsafe.Markup:
    """Returns a plot of lines, each in its colour, and of others that are dashed and grey.

    Args:
      title: Shown above the plot.
      description: The figures in words.
      lines: With their points marked, if these are few.
      dashed: The grey ones.
      **axes: Properties of matplotlib's axes, such as `xlabel`.
    """
    import matplotlib  # takes half a second, which only who writes a page has
    from matplotlib.figure import Figure

    style = matplotlib.rc_params_from_file(_STYLE, use_default_template=False)
    with matplotlib.rc_context({**style, "svg.hashsalt": title}):  # equal plots have equal bytes
        figure, svg = Figure(figsize=_SIZE), io.BytesIO()
        # The same margins for all: to find the least takes as long again as to draw.
        figure.subplots_adjust(left=0.16, right=0.97, top=0.91, bottom=0.2)
        subplot = figure.add_subplot(**axes)
        for line in lines:
            subplot.plot([point[0] for point in line], [point[1] for point in line], marker="o" * (len(line) < 30))
        for line in dashed:
            subplot.plot(*zip(*line, strict=True), color="#808a97", linestyle="--", linewidth=1)
        figure.savefig(svg, format="svg", metadata={"Date": None})
    html = '<figure class="chart"><figcaption>{}</figcaption><img alt="{}" src="data:image/svg+xml;base64,{}"></figure>'
    return markupsafe.Markup(html).format(title, description, base64.b64encode(svg.getvalue()).decode())


def evaluation_plots(e: Mapping[str, Any]) -> list[markupsafe.Markup]:
    """Returns those plots that an evaluation (the content of `evaluation.json`) has the figures for."""
    figures, names, plots = e["figures"], e["class_names"], []
    if calibration := figures.get("calibration"):
        words = f"Of answers that are this sure, so many are right; the expected calibration error is {calibration['ece']:.4f}."
        bins = [(each["confidence"], each["accuracy"]) for each in calibration["bins"]]
        labels = {"xlabel": "confidence", "ylabel": "share that is right"}
        plots.append(plot("calibration", words, [bins], _DIAGONAL, **labels, **_SHARES))
    if roc := figures.get("roc"):
        words = f"Share of {names[1]} that is found, against the share of {names[0]} that is taken for it."
        labels = {"xlabel": "false positives", "ylabel": "true positives"}
        plots.append(plot("ROC curve", words, [roc], _DIAGONAL, **labels, **_SHARES))
    if curve := figures.get("precision_recall"):
        words = f"Precision against recall of {names[1]}; the average precision is {curve['average_precision']:.4f}."
        labels = {"xlabel": "recall", "ylabel": "precision"}
        plots.append(plot("precision and recall", words, [curve["points"]], **labels, **_SHARES))
    return plots


def learning_curves(journals: Journals) -> list[markupsafe.Markup]:
    """Returns a plot of the loss, of each metric, and of the learning rate by the step; none before there are two steps."""
    training, validation = (_measured(journals, event) for event in ("step", "evaluation"))
    if len(training["loss"]) < 2:
        return []
    exported = [event["exported_step"] for event in journals.lasting("export")][-1:]
    plots = []
    for name in sorted(training | validation, key=lambda name: (name == "learning_rate", name != "loss", name)):
        lines = {label: of[name] for label, of in (("training", training), ("validation", validation))}
        values = [value for line in lines.values() for _, value in line]
        low, high = min(values), max(values)
        words = "; ".join(
            f"{label} {line[0][1]:.4g} at step {line[0][0]:,}, {line[-1][1]:.4g} at step {line[-1][0]:,}"
            for label, line in lines.items()
            if line
        )
        axes = {"yscale": "log"} if name.endswith("loss") and low > 0 and high > _FALLS * low else {}
        title = name.replace("_", " ")
        marked = [[(step, low), (step, high)] for step in exported]
        plots.append(plot(title, f"{title}: {words}", [*lines.values()], marked, xlabel="step", **axes))
    return plots


def _measured(journals: Journals, event: str) -> dict[str, list[tuple[int, float]]]:
    """Returns pairs of step and value of what the events of that kind measured, by name, where they are numbers."""
    lines = collections.defaultdict(list)
    for each in journals.lasting(event):
        for name in each.keys() - _NOT_MEASURED:
            if each[name] is not None and math.isfinite(each[name]):
                lines[name].append((each["step"], each[name]))
    return lines
