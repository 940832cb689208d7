"""How runs learnt, one over the other: a plot of each measure that their journals tell of."""

import collections
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import markupsafe

from components.evaluate.page import plots
from components.evaluate.page.attempts import Job
from components.evaluate.page.curves import BESIDES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS = {"step": "Training", "evaluation": "Validation"}
Line = list[tuple[int, float]]


def overlaid(names: Sequence[str], jobs: Sequence[Job]) -> list[markupsafe.Markup]:
    """The plots of two jobs of runs with these names: of losses, metrics and learning rates."""
    found: dict[str, tuple[Line, Line]] = collections.defaultdict(lambda: ([], []))
    for event, kind in _KINDS.items():
        for which, job in enumerate(jobs):
            for each in job.lasting(event):
                for name in each.keys() - set(BESIDES):
                    if each[name] is not None and math.isfinite(each[name]):
                        found[f"{kind} {name.replace('_', ' ')}"][which].append((each["step"], each[name]))
    return [_plot(title, names, found[title]) for title in sorted(found, key=_order) if max(map(len, found[title])) > 1]


def _order(title: str) -> tuple[bool, bool, str]:
    """Of training first; a learning rate last."""
    return title.endswith("learning rate"), title.startswith(_KINDS["evaluation"]), title


def _plot(title: str, names: Sequence[str], lines: tuple[Line, Line]) -> markupsafe.Markup:
    def draw(figure: "Figure") -> None:
        axes = figure.add_subplot(xlabel="step")
        for line, color in zip(lines, (plots.FIRST, plots.SECOND), strict=True):
            xs, ys = plots.thinned(*zip(*line, strict=True)) if line else ((), ())
            axes.plot(xs, ys, color=color, marker="o" if len(xs) < 30 else "", markersize=4)

    last = zip(names, (line[-1:] for line in lines), strict=True)
    ends = [f"{name} {value:.4g} at step {step:,}" for name, points in last for step, value in points]
    return plots.plot(title, f"{title}: {'; '.join(ends)}", draw)
