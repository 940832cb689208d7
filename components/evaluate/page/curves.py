"""Learning curves: what was measured by the step, in training and on the validation split."""

import math
from collections.abc import Sequence
from typing import Any

import markupsafe

from components.evaluate.page import plots
from components.evaluate.page.attempts import Event, Job

# What an event tells besides the loss, the metrics of the task, and the learning rate.
BESIDES = ("event", "step", "time", "seconds", "best", "examples_per_s", "replica_examples_per_s")
_FALLS = 30.0  # what falls by so much is seen on a logarithmic axis only


def curves(job: Job) -> list[markupsafe.Markup]:
    """A plot of the loss, of each metric of the task, and of the learning rate; none before there are two steps."""
    training, validation = job.lasting("step"), job.lasting("evaluation")
    if len(training) < 2:
        return []
    exported = [event["exported_step"] for event in job.lasting("export")][-1:]
    names = dict.fromkeys(name for event in training + validation for name in event if name not in BESIDES)
    found = {
        name: (_line(name, training), _line(name, validation)) for name in sorted(names, key="learning_rate".__eq__)
    }
    return [_plot(name, *lines, exported) for name, lines in found.items() if any(lines)]


def _line(name: str, events: Sequence[Event]) -> list[tuple[int, float]]:
    values = [(event["step"], event.get(name)) for event in events]
    return [(step, value) for step, value in values if value is not None and math.isfinite(value)]


def _plot(name: str, training: list, validation: list, exported: list[int]) -> markupsafe.Markup:
    lines = {which: line for which, line in (("training", training), ("validation", validation)) if line}
    values = [value for line in lines.values() for _, value in line]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot(xlabel="step")
        if name == "loss" and min(values) > 0 and max(values) > _FALLS * min(values):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("")
        for which, line in lines.items():
            color, marker = (plots.FIRST, "") if which == "training" else (plots.SECOND, "o" if len(line) < 30 else "")
            axes.plot(*plots.thinned(*zip(*line, strict=True)), color=color, marker=marker)
        if name == "learning_rate":
            axes.set_ylim(bottom=0)
        for step in exported:
            axes.axvline(step, color=plots.SOFT, linestyle="--", linewidth=1)

    ends = [(which, *line[0], *line[-1]) for which, line in lines.items()]
    told = "; ".join(
        f"{which} {a:.4g} at step {first:,}, {b:.4g} at step {last:,}" for which, first, a, last, b in ends
    )
    return plots.plot(name.replace("_", " "), f"{name.replace('_', ' ')}: {told}", draw)
