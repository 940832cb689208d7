"""CPU, memory and speed of every replica over time, one row each."""

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import markupsafe

from components.evaluate.page import plots
from components.evaluate.page.attempts import Attempt, Job

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Line = list[tuple[float, float]]  # time and value


def usage(job: Job) -> list[markupsafe.Markup]:
    """A plot each of cores, memory and examples per second, of the replicas that tell of it."""
    sharers = sum(any(each.all("step")) for attempts in job.replicas.values() for each in attempts[-1:]) or 1
    share = (job.batch_size or 0) / sharers

    def speed(attempt: Attempt) -> Line:
        steps = [event for event in attempt.all("step") if event.get("seconds")]
        pairs = itertools.pairwise(steps) if share else ()
        return [(b["time"], (b["step"] - a["step"]) * share / b["seconds"]) for a, b in pairs]

    plotted = {"CPU, cores in use": _cores, "memory, GB": _memory, "examples per second": speed}
    return [plot for title, line in plotted.items() if (plot := _plot(title, job, line))]


def _cores(attempt: Attempt) -> Line:
    return [
        (b["time"], (b["cpu"] - a["cpu"]) / (b["time"] - a["time"]))
        for a, b in itertools.pairwise(attempt.all("usage"))
        if b["time"] > a["time"]
    ]


def _memory(attempt: Attempt) -> Line:
    return [(event["time"], event["memory"] / 1e9) for event in attempt.all("usage")]


def _plot(title: str, job: Job, line: Callable[[Attempt], Line]) -> markupsafe.Markup | None:
    rows = {name: [found for each in attempts if (found := line(each))] for name, attempts in job.replicas.items()}
    rows = {name: lines for name, lines in rows.items() if lines}
    if not rows:
        return None
    first = min(attempts[0].began for attempts in job.replicas.values())
    most = {name: max(value for part in lines for _, value in part) for name, lines in rows.items()}

    def draw(figure: "Figure") -> None:
        shared = figure.subplots(len(rows), sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, (name, lines) in zip(shared, rows.items(), strict=True):
            for part in lines:
                times, values = plots.thinned(*zip(*part, strict=True))
                axes.plot(times - first, values, color=plots.FIRST)
            axes.set_ylim(bottom=0)
            axes.set_title(f"{name}, at most {most[name]:,.3g}", loc="left", fontsize=9, color=plots.SOFT)
        shared[-1].set_xlabel("seconds")

    told = "; ".join(f"{name} at most {value:,.3g}" for name, value in most.items())
    return plots.plot(title, f"{title}: {told}", draw, size=(4.3, 0.6 + 0.85 * len(rows)))
