"""Learning curves: what was measured by the step, in training and on the validation split."""

import collections
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import markupsafe

from components.evaluate.page import plots
from components.evaluate.page.attempts import Job

# What an event tells besides the loss, the metrics of the task, and the learning rate.
_BESIDES = {"event", "step", "time", "seconds", "best", "examples_per_s", "replica_examples_per_s"}
_KINDS = {"training": "step", "validation": "evaluation"}
_FALLS = 30.0  # what falls by so much is seen on a logarithmic axis only
Line = list[tuple[int, float]]  # step and value


def curves(job: Job) -> list[markupsafe.Markup]:
    """A plot of the loss, of each metric of the task, and of the learning rate; none before there are two steps."""
    training, validation = (_measured(job, event) for event in _KINDS.values())
    if len(training["loss"]) < 2:
        return []
    exported = [event["exported_step"] for event in job.lasting("export")][-1:]
    both = {name: {"training": training[name], "validation": validation[name]} for name in _names(training, validation)}
    return [_plot(name, lines, exported) for name, lines in both.items() if any(lines.values())]


def _measured(job: Job, event: str) -> Mapping[str, Line]:
    """What the events of that kind tell, by name; what is no number is passed over."""
    found: dict[str, Line] = collections.defaultdict(list)
    for each in job.lasting(event):
        for name in each.keys() - _BESIDES:
            if each[name] is not None and math.isfinite(each[name]):
                found[name].append((each["step"], each[name]))
    return found


def _names(*measured: Mapping[str, Line]) -> list[str]:
    """All of them: the loss first, the learning rate last."""
    return sorted({*itertools.chain(*measured)}, key=lambda name: (name == "learning_rate", name != "loss", name))


def _plot(name: str, lines: Mapping[str, Line], marked: Sequence[int] = ()) -> markupsafe.Markup:
    """Of lines by their labels, with those steps marked."""
    values = [value for line in lines.values() for _, value in line]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot(xlabel="step")
        if name.endswith("loss") and min(values) > 0 and max(values) > _FALLS * min(values):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("")
        for line, color in zip(lines.values(), (plots.FIRST, plots.SECOND), strict=True):
            if line:
                marker = "o" if len(line) < 30 else ""
                axes.plot(*plots.thinned(*zip(*line, strict=True)), color=color, marker=marker)
        if name.endswith("learning_rate"):
            axes.set_ylim(bottom=0)
        for step in marked:
            axes.axvline(step, color=plots.SOFT, linestyle="--", linewidth=1)

    ends = [(which, *line[0], *line[-1]) for which, line in lines.items() if line]
    told = "; ".join(
        f"{which} {a:.4g} at step {first:,}, {b:.4g} at step {last:,}" for which, first, a, last, b in ends
    )
    title = name.replace("_", " ")
    return plots.plot(title, f"{title}: {told}", draw)
