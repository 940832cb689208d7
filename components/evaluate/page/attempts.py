"""Attempts of a job's replicas, each one process, as their journals have them."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from trainer.job import journal

Event = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """One process of a replica; steps above `kept` it made for nothing, for a later one began there."""

    events: Sequence[Event]  # the oldest first; there is one at least
    kept: float

    @property
    def seconds(self) -> float:
        """Seconds from the first event to the last; every two seconds there is one."""
        return self.events[-1]["time"] - self.events[0]["time"]

    @property
    def first_step(self) -> int | None:
        """Step that it began or resumed at; None if it did not come so far, or only serves."""
        return next((each["step"] for each in self.events if each["event"] in ("start", "resume")), None)

    @property
    def last_step(self) -> int:
        """Highest step that it reached."""
        return max(each["step"] for each in self.events)

    def all(self, event: str) -> Iterator[Event]:
        """Its events of that kind."""
        return (each for each in self.events if each["event"] == event)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """The attempts of every replica, by its name, the oldest first."""

    replicas: Mapping[str, Sequence[Attempt]]

    @classmethod
    def load(cls, job_dir: str) -> "Job":
        """Reads what is in a directory: of none of a job, no replicas."""
        names = journal.replicas(job_dir) if epath.Path(job_dir).is_dir() else ()
        return cls(replicas={name: attempts for name in names if (attempts := _attempts(job_dir, name))})

    def lasting(self, event: str) -> list[Event]:
        """The events of that kind that count, by step: of steps that were made again the later ones."""
        found: dict[int, Event] = {}
        for attempts in reversed(self.replicas.values()):  # the chief, who is the first, has the last word
            for attempt in attempts:
                found |= {each["step"]: each for each in attempt.all(event) if each["step"] <= attempt.kept}
        return [found[step] for step in sorted(found)]


def _attempts(job_dir: str, name: str) -> list[Attempt]:
    found, kept, events = [], math.inf, []
    for event in journal.events(job_dir, name):
        events.append(event)
        if event["event"] == "machine":  # the first word of each
            attempt = Attempt(events=events[::-1], kept=kept)
            found.append(attempt)
            kept = min(kept, attempt.first_step if attempt.first_step is not None else math.inf)
            events = []
    return found[::-1]
