"""Reads a job's journals: the events that count, and the attempts of each replica, one process each."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from trainer.job import journal

Event = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """One process of a replica."""

    first_step: int | None  # at which it began or resumed; None if it did not come so far, or only serves
    last_step: int
    seconds: float  # from the first event to the last; every two seconds there is one


class Journals:
    """Journals of a job.

    Attributes:
      attempts: Those of every replica by its name, the oldest first.
    """

    def __init__(self, job_dir: str) -> None:
        self.attempts: dict[str, list[Attempt]] = {}
        self._lasting: dict[tuple[str, int], Event] = {}
        # The chief is the first, and has the last word.
        for name in journal.replicas(job_dir) if job_dir and epath.Path(job_dir).is_dir() else ():
            if attempts := [*self._read(job_dir, name)]:
                self.attempts[name] = attempts[::-1]

    def lasting(self, event: str) -> list[Event]:
        """Returns the events of that kind by step: of steps that were made again the later ones."""
        return [self._lasting[key] for key in sorted(self._lasting) if key[0] == event]

    def _read(self, job_dir: str, name: str) -> Iterator[Attempt]:
        kept, events = math.inf, []
        for event in journal.events(job_dir, name):  # the newest first
            events.append(event)
            if event["step"] <= kept:
                self._lasting.setdefault((event["event"], event["step"]), event)
            if event["event"] == "machine":  # the first of each attempt
                first = next((each["step"] for each in events if each["event"] in ("start", "resume")), None)
                last = max(each["step"] for each in events)
                yield Attempt(first_step=first, last_step=last, seconds=events[0]["time"] - event["time"])
                kept = kept if first is None else min(kept, first)
                events = []
