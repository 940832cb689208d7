"""Learning curves: what was measured by the step, in training and on the validation split."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import markupsafe

from components.evaluate.page import plots
from components.evaluate.page.attempts import Event, Job

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What an event tells besides the loss and the metrics of the task.
BESIDES = ("event", "step", "time", "seconds", "best", "examples_per_s", "replica_examples_per_s")
_FALLS = 30.0  # what falls by so much is seen on a logarithmic axis only


def curves(job: Job) -> list[markupsafe.Markup]:
    """A plot of the loss, of each metric of the task, and of the learning rate; none before there are two steps."""
    training, validation = job.lasting("step"), job.lasting("evaluation")
    if len(training) < 2:
        return []
    exported = [event["exported_step"] for event in job.lasting("export")][-1:]
    names = dict.fromkeys(name for event in training + validation for name in event if name not in BESIDES)
    return [_plot(name, _line(name, training), _line(name, validation), exported) for name in sorted(names, key=_order)]


def _order(name: str) -> tuple[bool, bool]:
    """The loss first, the learning rate last."""
    return name == "learning_rate", name != "loss"


def _line(name: str, events: Sequence[Event]) -> list[tuple[int, float]]:
    return [(event["step"], event[name]) for event in events if event.get(name) is not None]


def _plot(name: str, training: list, validation: list, exported: list[int]) -> markupsafe.Markup:
    lines = {"training": training, "validation": validation}
    values = [value for line in lines.values() for _, value in line]

    def draw(figure: "Figure") -> None:
        axes = figure.add_subplot(xlabel="step")
        if name == "loss" and min(values) > 0 and max(values) > _FALLS * min(values):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("")
        for color, line in zip((plots.FIRST, plots.SECOND), lines.values(), strict=True):
            xs, ys = plots.thinned(*zip(*line, strict=True)) if line else ([], [])
            axes.plot(xs, ys, color=color, marker="o" if len(xs) < 30 and color == plots.SECOND else "", markersize=4)
        for step in exported:
            axes.axvline(step, color=plots.SOFT, linestyle="--", linewidth=1)

    told = [
        f"{which} {line[0][1]:.4g} at step {line[0][0]:,}, {line[-1][1]:.4g} at step {line[-1][0]:,}"
        for which, line in lines.items()
        if line
    ]
    title = name.replace("_", " ")
    return plots.plot(title, f"{title}: {'; '.join(told)}", draw)
