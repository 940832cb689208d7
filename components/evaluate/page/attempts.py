"""The attempts of a job's replicas, each one process, as their journals tell of them."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from trainer.job_dir import identity, journal

Event = Mapping[str, Any]
_PAUSE_S = 60.0  # in which no replica was there at all: nobody waited


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """One process of a replica; steps above `kept` it made for nothing, for a later one began there."""

    events: Sequence[Event]  # the oldest first; there is one at least
    kept: float

    @property
    def began(self) -> float:
        """When the process did, in seconds since the epoch; later than its first word it cannot be."""
        return min(self.events[0].get("began", math.inf), self.events[0]["time"])

    @property
    def ended(self) -> float:
        """When it was last heard of: every two seconds it tells what it uses."""
        return self.events[-1]["time"]

    def all(self, event: str) -> Iterator[Event]:
        """Its events of that kind."""
        return (each for each in self.events if each["event"] == event)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """The attempts of every replica, by its name, the oldest first."""

    replicas: Mapping[str, Sequence[Attempt]]
    batch_size: int | None  # examples of a step

    @classmethod
    def load(cls, job_dir: str) -> "Job":
        """Reads what is in a directory: of none of a job, no replicas."""
        names = journal.replicas(job_dir) if epath.Path(job_dir).is_dir() else ()
        found = {name: attempts for name in names if (attempts := _attempts(job_dir, name))}
        settings = identity.facts(job_dir).get("settings", {}) if found else {}
        return cls(replicas=found, batch_size=settings.get("batch_size"))

    def lasting(self, event: str) -> list[Event]:
        """The events of that kind that count, by step: of steps that were made again the later ones."""
        found: dict[int, Event] = {}
        for attempts in reversed(self.replicas.values()):  # the chief, who is the first, has the last word
            for attempt in attempts:
                found |= {each["step"]: each for each in attempt.all(event) if each["step"] <= attempt.kept}
        return [found[step] for step in sorted(found)]

    def clock(self, time: float) -> float:
        """Seconds since the first replica began, without pauses of the whole job."""
        attempts = sorted((a for each in self.replicas.values() for a in each), key=lambda attempt: attempt.began)
        left_out, end = attempts[0].began, attempts[0].began
        for attempt in attempts:
            if end + _PAUSE_S < attempt.began <= time:
                left_out += attempt.began - end
            end = max(end, attempt.ended)
        return time - left_out


def _attempts(job_dir: str, name: str) -> list[Attempt]:
    found, kept, events = [], math.inf, []
    for event in journal.events(job_dir, name):
        events.append(event)
        if event["event"] == "machine":  # the first word of each
            found.append(Attempt(events=events[::-1], kept=kept))
            kept = min([kept, *(each["step"] for each in events if each["event"] in ("start", "resume"))])
            events = []
    return found[::-1]
