"""What a replica's death means: an error or a preemption, who starts again, and when it is enough.

Synopsis:

    kind = kind_of(child.exit_code, frozen=False)
    reason = budgets.charge(kind, new_step=True)
    if not reason: restart(everyone if restarts_all("parameter_server", "worker", child.exit_code) else child)
"""

from __future__ import annotations

import enum
import signal

SAVED = 143  # 128 + SIGTERM: saved and yielding.
USER_ERROR = 2  # A mistake in flags or input: it would happen again.
# Signals that come from outside, when a machine is taken away; the others a program raises by its own fault.
_OUTSIDE = frozenset(128 + n for n in (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM))
_FRUITLESS = 3
_BACKOFF_S, _LONGEST_BACKOFF_S = 0.5, 5.0


class Kind(enum.StrEnum):
    """What ended a replica."""

    ERROR = "error"
    PREEMPTION = "preemption"
    USER_ERROR = "user error"


def kind_of(exit_code: int, *, frozen: bool) -> Kind:
    """The kind of a death.

    Args:
      exit_code: As a shell has it; 128+n also if the replica runs elsewhere and its client tells of signal n so.
      frozen: Whether it was killed because it was taken for frozen.
    """
    if exit_code == USER_ERROR:
        return Kind.USER_ERROR
    return Kind.PREEMPTION if exit_code in _OUTSIDE and not frozen else Kind.ERROR


def restarts_all(strategy: str, role: str, exit_code: int) -> bool:
    """Whether all start again from the last checkpoint when this replica died, and not it alone.

    Workers of a synchronous job compute every step together. Under parameter servers the chief gives a dead worker's
    work to others until it is back; but one that leaves with 143 has had the whole job save and leave. An evaluator only
    reads checkpoints.
    """
    if role == "evaluator":
        return False
    return strategy != "parameter_server" or role != "worker" or exit_code == SAVED


class Budgets:
    """Restarts that are left."""

    def __init__(self, max_restarts: int):
        self._max = max_restarts
        self.used = {Kind.ERROR: 0, Kind.PREEMPTION: 0}
        self._fruitless = 0

    def charge(self, kind: Kind, exit_code: int, *, new_step: bool) -> str:
        """Counts a death. Returns why the job has to end now, or nothing.

        Args:
          kind: What it was.
          exit_code: Of the replica.
          new_step: Whether the job has made a step that is new since the death before, or cannot tell.
        """
        if kind is Kind.USER_ERROR:
            return "it would fail again"
        if new_step:
            self._fruitless = 0
        elif exit_code != SAVED:  # Those who save and leave do as they were told.
            self._fruitless += 1
        if self._fruitless >= _FRUITLESS:
            return f"{_FRUITLESS} failures in a row without a new step"
        if self.used[kind] >= self._max:
            return f"no restart after {kind}s is left (max_restarts: {self._max})"
        self.used[kind] += 1
        return ""

    @property
    def backoff_s(self) -> float:
        """To wait before the next start: nothing while the job gets on."""
        return min(_LONGEST_BACKOFF_S, _BACKOFF_S * (2**self._fruitless - 1))


class Progress:
    """Whether the job gets on.

    Attributes:
      step: The highest that a replica has told of, or None.
    """

    def __init__(self, *, told: bool):
        """`told`: whether the program is known to tell of its steps."""
        self.step: int | None = None
        self._told = told
        self._before = 0

    def note(self, step: int | None) -> None:
        """A replica is at this step, if it is at any."""
        if step is None:
            return
        if self.step is None:
            self._before = step  # Where the job resumed.
        self.step = max(step, self.step or 0)

    def new_step(self) -> bool:
        """Whether there is a step that there was not at the last call; True if nobody tells of steps."""
        before, self._before = self._before, self.step or 0
        return self._before > before or (self.step is None and not self._told)
