"""Who is told of a job while it runs; what it looks like is the matter of whoever implements this."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A replica at one moment.

    Attributes:
      replica: Its name, `worker/1`.
      state: What it does: a phase of the trainer, `starting`, `stopping`, `ended`, ...
      restarts: How often it was started again.
      step: Global step, if it tells.
      examples_per_s: Of the whole job, if it tells.
      memory: Resident bytes.
    """

    replica: str
    state: str
    restarts: int
    step: int | None = None
    examples_per_s: float | None = None
    memory: int | None = None


class Audience(Protocol):
    """What supervision says; none of it may raise, or make it wait for long."""

    def lines(self, name: str, lines: Sequence[str]) -> None:
        """What a replica has written."""

    def event(self, event: Mapping[str, Any]) -> None:
        """What happened to the job: see `launcher_log`."""

    def rows(self, rows: Sequence[Row]) -> None:
        """How the replicas are now."""
