"""Who is told of a job while it runs; what it looks like is the matter of whoever implements this."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A replica at one moment."""

    replica: str  # Its name, `worker/1`.
    state: str  # What it does: a phase of the trainer, `starting`, `stopping`, `ended`, ...
    restarts: int  # How often it was started again.
    step: int | None = None  # Global step, if it tells.
    examples_per_s: float | None = None  # Of the whole job, if it tells.
    memory: float | None = None  # Resident bytes.


class Audience(Protocol):
    """What supervision says; none of it may raise, or make it wait for long."""

    def lines(self, name: str, lines: Sequence[str]) -> None:
        """What a replica has written."""

    def event(self, event: Mapping[str, Any]) -> None:
        """What happened to the job: see `launcher_log`."""

    def rows(self, rows: Sequence[Row]) -> None:
        """How the replicas are now."""
