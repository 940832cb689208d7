"""CPU, memory and speed of every replica over time, one row each."""

import itertools
from collections.abc import Callable
from typing import Any

import markupsafe

from components.evaluate.page import plots
from components.evaluate.page.attempts import Attempt, Job

Line = list[tuple[float, float]]  # time and value


def usage(job: Job) -> list[markupsafe.Markup]:
    """A plot each of cores, memory and examples per second, of the replicas that tell of it."""
    sharers = sum(any(attempts[-1].all("step")) for attempts in job.replicas.values())
    plotted = {
        "CPU, cores in use": lambda attempt: _rates(attempt, "cpu"),
        "memory, GB": lambda attempt: [(event["time"], event["memory"] / 1e9) for event in attempt.all("usage")],
        "examples per second": lambda attempt: _rates(attempt, "step", (job.batch_size or 0) / max(sharers, 1)),
    }
    return [plot for title, line in plotted.items() if (plot := _plot(title, job, line))]


def _rates(attempt: Attempt, field: str, times: float = 1.0) -> Line:
    """How fast something grew from one time that its use was told to the next; nothing if it never did."""
    pairs = [(a, b) for a, b in itertools.pairwise(attempt.all("usage")) if b["time"] > a["time"]]
    found = [(b["time"], times * (b[field] - a[field]) / (b["time"] - a["time"])) for a, b in pairs]
    return found if any(value for _, value in found) else []


def _plot(title: str, job: Job, line: Callable[[Attempt], Line]) -> markupsafe.Markup | None:
    rows = {name: [found for each in attempts if (found := line(each))] for name, attempts in job.replicas.items()}
    most = {name: max(value for part in lines for _, value in part) for name, lines in rows.items() if lines}
    if not most:
        return None
    told = {
        name: f"{name} at most {value:,.0f}" if value >= 100 else f"{name} at most {value:.3g}"
        for name, value in most.items()
    }

    def draw(figure: Any) -> None:
        shared = figure.subplots(len(most), sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, name in zip(shared, most, strict=True):
            for part in rows[name]:
                times, values = plots.thinned(*zip(*part, strict=True))
                axes.plot([job.clock(time) for time in times], values, color=plots.FIRST)
            axes.set_ylim(bottom=0)
            axes.locator_params(axis="y", nbins=2)
            axes.set_title(told[name], loc="left", fontsize=9, color=plots.SOFT)
        shared[-1].set_xlabel("seconds")

    return plots.plot(title, f"{title}: {'; '.join(told.values())}", draw, size=(3.8, 0.6 + 0.85 * len(most)))
