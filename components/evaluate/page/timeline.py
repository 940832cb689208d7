"""What every replica of a job did when, and which share of their time made steps that stayed."""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import markupsafe

from components.evaluate.page import plots
from components.evaluate.page.attempts import Attempt, Job

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# In words, and the colour.
KINDS = {
    "stayed": ("steps that stayed", plots.FIRST),
    "again": ("steps that were lost and made again", plots.BAD),
    "start": ("start-up", plots.SOFT),
    "first": ("first steps: tracing and compiling", plots.THIRD),
    "checkpoint": ("waiting for checkpoints", plots.INK),
    "evaluation": ("evaluation", plots.SECOND),
    "export": ("export", plots.FOURTH),
    "wait": ("waiting for others, and between steps", plots.LINE),
}
_GAP_S = 60.0  # in which no replica was there at all: nobody waited, and it is left out


@dataclasses.dataclass(frozen=True, kw_only=True)
class Span:
    """A part of the life of a replica, in seconds since the epoch."""

    start: float
    end: float
    kind: str


def lives(job: Job) -> dict[str, list[Span]]:
    """By replica what it did, in order. Those that only serve did what the chief did meanwhile."""
    found: dict[str, list[Span]] = {}
    for name, attempts in job.replicas.items():
        found[name] = []
        for attempt in attempts:
            spans = list(_spans(attempt))
            if any(attempt.all("serve")):
                spans = [part for span in spans for part in _shared(span, next(iter(found.values())))]
            found[name] += spans
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
    kinds = {"machine": "start", "start": "start", "resume": "start", "serve": "start", "export": "export"}
    kinds |= {"preempted": "checkpoint", "evaluation": "evaluation", "checkpoint": "checkpoint", "done": "wait"}
    for event in attempt.events:
        if event["event"] == "step":
            kind = ("stayed" if event["step"] <= attempt.kept else "again") if steps else "first"
            steps += 1
        elif (kind := kinds.get(event["event"], "")) == "":
            continue
        took = event.get("waited_s", event.get("seconds", event["time"] - at))
        begun = max(at, event["time"] - took)
        yield Span(start=at, end=begun, kind="checkpoint" if writes and kind == "stayed" else "wait")
        yield Span(start=begun, end=max(begun, event["time"]), kind=kind)
        at = max(begun, event["time"])
    if attempt.ended > at:
        serves = any(attempt.all("serve"))
        yield Span(start=at, end=attempt.ended, kind="serve" if serves else "again" if steps else "start")


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
            yield Span(start=start, end=end, kind=other.kind if other.kind in ("stayed", "again", "first") else "wait")
            at = end
    yield Span(start=at, end=span.end, kind="wait")


def timeline(job: Job) -> dict[str, Any] | None:
    """The `plot`, a `sentence`, and the `table` of the kinds: words, CSS colour, seconds, share. None without journals."""
    if not job.replicas:
        return None
    spans = lives(job)
    seconds = lost(spans)
    total = sum(seconds.values()) or 1.0
    goodput = seconds.get("stayed", 0.0) / total
    names = [name for name in spans if not name.startswith("evaluator")]
    restarts = sum(len(attempts) - 1 for attempts in job.replicas.values())
    sentence = (
        f"{goodput:.0%} of the {total:,.0f} seconds that {len(names)} {'replicas' if len(names) > 1 else 'replica'} lived "
        f"made steps that stayed; {restarts or 'no'} {'restart' if restarts == 1 else 'restarts'}."
    )
    table = [(KINDS[kind][0], plots.VARIABLES[KINDS[kind][1]], each, each / total) for kind, each in seconds.items()]
    return {
        "plot": _plot(job, spans, sentence),
        "sentence": sentence,
        "table": [row for row in table if row[2] >= 0.05],
    }


def _plot(job: Job, spans: Mapping[str, Sequence[Span]], sentence: str) -> markupsafe.Markup:
    clock = _Clock(span for each in spans.values() for span in each)
    least = clock.total / 1500  # what is narrower than a pixel is not drawn

    def draw(figure: "Figure") -> None:
        axes = figure.add_subplot(xlabel="seconds")
        axes.grid(visible=False, axis="y")
        for row, (name, each) in enumerate(spans.items()):
            for kind, (_, color) in KINDS.items():
                bars = [(clock(s.start), s.end - s.start) for s in _joined(each, least) if s.kind == kind]
                axes.broken_barh(bars, (row - 0.36, 0.72), color=color, linewidth=0)
            attempts = job.replicas[name]
            for attempt in attempts[1:]:
                axes.plot(clock(attempt.began), row - 0.45, marker="v", color=plots.BAD, markersize=6)
            saved = [clock(event["time"]) for attempt in attempts for event in attempt.all("checkpoint")]
            axes.plot(saved, [row + 0.45] * len(saved), marker="^", color=plots.INK, markersize=4, linestyle="")
        axes.set_yticks(range(len(spans)), list(spans))
        axes.set_ylim(len(spans) - 0.4, -0.6)
        axes.set_xlim(0, clock.total or 1.0)

    return plots.plot("What each replica did", sentence, draw, size=(11.6, 0.8 + 0.36 * len(spans)))


def _joined(spans: Iterable[Span], least: float) -> Iterator[Span]:
    """The same with neighbours of one kind as one, over what lies between them and is too short to be seen."""
    held: Span | None = None
    for span in spans:
        if span.end - span.start < least:
            continue
        if held and held.kind == span.kind and span.start - held.end < least:
            held = dataclasses.replace(held, end=span.end)
            continue
        if held:
            yield held
        held = span
    if held:
        yield held


class _Clock:
    """Seconds since the first of these spans, without the times in which there was none."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._cuts: list[tuple[float, float]] = []  # from then on, so much less
        end, cut = None, 0.0
        for span in sorted(spans, key=lambda span: span.start):
            if end is None or span.start - end > _GAP_S:
                cut += span.start - (end if end is not None else 0.0)
                self._cuts.append((span.start, cut))
            end = max(span.end, end or span.end)
        self.total = (end - cut) if end else 0.0

    def __call__(self, time: float) -> float:
        return time - max(cut for start, cut in self._cuts if start <= time)
