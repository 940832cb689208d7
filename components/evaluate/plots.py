"""Plots of an evaluation and of a job's journals: as SVG images in HTML, and in words.

plot("loss", "training 0.4 at step 2", [[(1, 0.9), (2, 0.4)]], xlabel="step")
"""

import base64
import collections
import io
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import markupsafe
from etils import epath

from trainer.job import journal

_STYLE = pathlib.Path(__file__).with_name("templates") / "plots.mplstyle"
_SIZE = 3.8, 2.3  # Width and height of a plot in inches.
# Fields of an event that are not plotted.
_OTHER_FIELDS = {"event", "step", "time", "seconds", "best", "examples_per_s"}
Line = Sequence[Sequence[float]]  # Points of x and y; further values of a point are not drawn.


def plot(title: str, description: str, lines: Sequence[Line], **axes: Any) -> markupsafe.Markup:
    """Returns a plot of lines, each in its own colour, as an HTML figure.

    Args:
      title: Text above the plot.
      description: The plot in words, for people who cannot see it.
      lines: Lines to draw; a line of fewer than 30 points has its points marked.
      **axes: Properties of matplotlib's axes, such as `xlabel`.
    """
    import matplotlib  # The import takes half a second, and only pages need it.
    from matplotlib.figure import Figure

    style = matplotlib.rc_params_from_file(_STYLE, use_default_template=False)
    with matplotlib.rc_context({**style, "svg.hashsalt": title}):  # Equal plots have equal bytes.
        figure, svg = Figure(figsize=_SIZE), io.BytesIO()
        # All plots have the same margins: to compute the smallest takes as long as to draw.
        figure.subplots_adjust(left=0.16, right=0.97, top=0.91, bottom=0.2)
        subplot = figure.add_subplot(**axes)
        for line in lines:
            xs, ys = ([point[i] for point in line] for i in range(2))
            subplot.plot(xs, ys, marker="o" * (len(line) < 30))
        figure.savefig(svg, format="svg", metadata={"Date": None})
    html = (
        '<figure class="chart"><figcaption>{}</figcaption><img alt="{}" '
        'src="data:image/svg+xml;base64,{}"></figure>'
    )
    image = base64.b64encode(svg.getvalue()).decode()
    return markupsafe.Markup(html).format(title, description, image)


def evaluation_plots(e: Mapping[str, Any]) -> list[markupsafe.Markup]:
    """Returns the plots of an evaluation: ROC curve, precision and recall, calibration by target.

    Args:
      e: The content of `evaluation.json`. Without the figures of a curve its plot is left out.
    """
    figures, names, plots = e["figures"], e["class_names"], []
    if roc := figures.get("roc"):
        words = (
            f"Share of {names[1]} that is found, against the share of {names[0]} that is "
            "taken for it."
        )
        labels = {"xlabel": "false positives", "ylabel": "true positives"}
        plots.append(plot("ROC curve", words, [roc], **labels))
    if curve := figures.get("precision_recall"):
        words = (
            f"Precision against recall of {names[1]}; the average precision is "
            f"{curve['average_precision']:.4f}."
        )
        labels = {"xlabel": "recall", "ylabel": "precision"}
        plots.append(plot("precision and recall", words, [curve["points"]], **labels))
    for target in figures.get("calibration", ()):
        words = "Mean true value of records with near predictions; blue is where both are equal."
        ends = [[end, end] for end in (min(target["points"])[0], max(target["points"])[0])]
        labels = {"xlabel": "predicted", "ylabel": "true"}
        plots.append(plot(target["name"], words, [target["points"], ends], **labels))
    return plots


def learning_curves(job_dir: str) -> list[markupsafe.Markup]:
    """Returns plots over the training steps: the loss, each metric, and the learning rate last.

    Each has a line for training and one for validation. Values that are not finite are left out.

    Args:
      job_dir: Directory of a job, or an empty text.

    Returns:
      The plots; none if there is no such directory, or if its journals have fewer than two training
      steps with a finite loss.
    """
    newest: dict[tuple[str, int], dict[str, Any]] = {}
    if job_dir and epath.Path(job_dir).is_dir():
        # The first event of a step is kept. The chief comes first, and of a replica the newest
        # event, which counts if a step was repeated after a restart.
        for name in journal.replicas(job_dir):
            for event in journal.events(job_dir, name):
                newest.setdefault((event["event"], event["step"]), event)
    curves: dict[str, dict[str, list[Any]]] = collections.defaultdict(
        lambda: {"training": [], "validation": []}
    )
    for (kind, step), event in sorted(newest.items()):
        if label := {"step": "training", "evaluation": "validation"}.get(kind):
            for name in event.keys() - _OTHER_FIELDS:
                if event[name] is not None and math.isfinite(event[name]):
                    curves[name][label].append((step, event[name]))
    if len(curves["loss"]["training"]) < 2:
        return []
    plots = []
    for name in sorted(curves, key=lambda name: (name == "learning_rate", name != "loss", name)):
        lines = curves[name]
        ends = [
            f"{label} {line[-1][1]:.4g} at step {line[-1][0]:,}"
            for label, line in lines.items()
            if line
        ]
        plots.append(
            plot(name.replace("_", " "), "; ".join(ends), [*lines.values()], xlabel="step")
        )
    return plots
