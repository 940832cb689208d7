"""What every replica of a job did when, and which share of their time made steps that stayed."""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import markupsafe

from components.evaluate.page import plots
from components.evaluate.page.attempts import Attempt, Job

# The colours of what a replica does; templates/training.html has the words.
_STEPS = {"stayed": plots.FIRST, "again": plots.BAD, "first": plots.THIRD}
_BESIDES = {"start": plots.SOFT, "checkpoint": plots.INK, "evaluation": plots.SECOND, "export": plots.FOURTH}
KINDS = {**_STEPS, **_BESIDES, "wait": plots.LINE}
_AFTER = {
    "evaluation": "evaluation",
    "checkpoint": "checkpoint",
    "preempted": "checkpoint",
    "export": "export",
    "done": "wait",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Span:
    """A part of the life of a replica, in seconds since the epoch."""

    start: float
    end: float
    kind: str


def lives(job: Job) -> dict[str, list[Span]]:
    """By replica what it did, in order. Those that only serve did what the chief, who is the first, did meanwhile."""
    found: dict[str, list[Span]] = {}
    for name, attempts in job.replicas.items():
        chiefs = next(iter(found.values()), [])
        found[name] = [part for attempt in attempts for span in _spans(attempt) for part in _shared(span, chiefs)]
    return found


def lost(spans: Mapping[str, Iterable[Span]]) -> dict[str, float]:
    """Seconds of all replicas together by kind, the most first; an evaluator's, which makes no steps, do not count."""
    seconds: dict[str, float] = collections.defaultdict(float)
    for name, each in spans.items():
        for span in each if not name.startswith("evaluator") else ():
            seconds[span.kind] += span.end - span.start
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def _spans(attempt: Attempt) -> Iterator[Span]:
    """From one event to the next; what takes a time that it tells has only that, and before it the replica waited."""
    at, steps, writes = attempt.began, 0, any(attempt.all("checkpoint"))
    for event in (event for event in attempt.events if event["event"] != "usage"):
        kind = _AFTER.get(event["event"], "start")
        if event["event"] == "step":
            kind = ("stayed" if event["step"] <= attempt.kept else "again") if steps else "first"
            steps += 1
        begun = max(at, event["time"] - event.get("waited_s", event.get("seconds", event["time"] - at)))
        between = "start" if kind == "first" else "checkpoint" if writes and kind == "stayed" else "wait"
        yield Span(start=at, end=begun, kind=between)
        yield Span(start=begun, end=max(begun, event["time"]), kind=kind)
        at = max(begun, event["time"])
    if attempt.ended > at:
        kept = any(any(attempt.all(event)) for event in ("done", "preempted"))  # nothing was lost after these
        kind = "serve" if any(attempt.all("serve")) else "wait" if kept else "again" if steps else "start"
        yield Span(start=at, end=attempt.ended, kind=kind)


def _shared(span: Span, others: Sequence[Span]) -> Iterator[Span]:
    """The span of a replica that serves, as those of the chief are; what that does by itself, the others wait for."""
    if span.kind != "serve":
        yield span
        return
    at = span.start
    for other in others:
        start, end = max(at, other.start), min(span.end, other.end)
        if end > start:
            yield Span(start=at, end=start, kind="wait")
            yield Span(start=start, end=end, kind=other.kind if other.kind in _STEPS else "wait")
            at = end
    yield Span(start=at, end=span.end, kind="wait")


def timeline(job: Job) -> dict[str, Any] | None:
    """The `plot`, a `sentence`, and the `table` of the kinds: its CSS colour, seconds, share. None without journals."""
    if not job.replicas:
        return None
    spans = lives(job)
    seconds = lost(spans)
    total = sum(seconds.values()) or 1.0
    count = sum(not name.startswith("evaluator") for name in spans)
    restarts = sum(len(attempts) - 1 for attempts in job.replicas.values())
    sentence = (
        f"{seconds.get('stayed', 0.0) / total:.0%} of the {total:,.0f} seconds that {count} replica{'s' * (count != 1)} lived "
        f"made steps that stayed; {restarts or 'no'} restart{'s' * (restarts != 1)}."
    )
    table = [(kind, plots.VARIABLES[KINDS[kind]], each, each / total) for kind, each in seconds.items()]
    return {"plot": _plot(job, spans, sentence), "sentence": sentence, "table": table}


def _plot(job: Job, spans: Mapping[str, Sequence[Span]], sentence: str) -> markupsafe.Markup:
    end = max(job.clock(attempt.ended) for attempts in job.replicas.values() for attempt in attempts) or 1.0

    def draw(figure: Any) -> None:
        axes = figure.add_subplot(xlabel="seconds", xlim=(0, end), ylim=(len(spans) - 0.4, -0.6))
        axes.grid(visible=False, axis="y")
        axes.set_yticks(range(len(spans)), list(spans))
        for row, (name, each) in enumerate(spans.items()):
            for span in _joined(each, least=end / 1500):  # what is narrower than a pixel is not drawn
                at = job.clock(span.start)
                axes.barh(row, job.clock(span.end) - at, 0.72, at, color=KINDS[span.kind], linewidth=0)
            attempts = job.replicas[name]
            again = [job.clock(attempt.began) for attempt in attempts[1:]]
            saved = [job.clock(event["time"]) for attempt in attempts for event in attempt.all("checkpoint")]
            axes.plot(again, [row - 0.45] * len(again), "v", color=plots.BAD)
            axes.plot(saved, [row + 0.45] * len(saved), "^", color=plots.INK)

    return plots.plot("What each replica did", sentence, draw, size=(11.6, 0.8 + 0.36 * len(spans)))


def _joined(spans: Iterable[Span], least: float) -> Iterator[Span]:
    """The same with neighbours of one kind as one, without what is shorter than the least."""
    long = (span for span in spans if span.end - span.start >= least)
    for _, run in itertools.groupby(long, key=lambda span: span.kind):
        whole = list(run)
        yield dataclasses.replace(whole[0], end=whole[-1].end)
