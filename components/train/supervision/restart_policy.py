"""One restart policy for all back ends: what an exit code means, who starts again, and when it is enough.

    kind_of(143) is Kind.PREEMPTION
    decide("worker", "multi_worker_mirrored", 137) is Follows.RESTART_ALL
    budget, why = budget.charged(Kind.ERROR, 1, max_restarts=5)  # Nothing starts again if there is a `why`.

| end | kind | follows |
| --- | --- | --- |
| exit code 2 | user error | nothing: it would fail again |
| 143; 137, 130, 129 from outside; lost machines | preemption | a restart, of `max_restarts` after preemptions |
| any other, and a frozen replica | error | a restart, of `max_restarts` after errors |

A row of failures without a new step ends the job. All functions are pure. `decide` is about the replicas that `supervisor`
starts; custom jobs of Vertex AI, of which each is one attempt of all replicas, are charged to the same budgets by
`backends.attempts`. An evaluator has a budget of its own, and its failures never end the job.
"""

import dataclasses
import enum
import signal
from typing import Self

SAVED = 128 + signal.SIGTERM  # Saved and yielding.
KILLED = 128 + signal.SIGKILL
NO_CAPACITY, TIMED_OUT = 75, 124  # Exit codes: EX_TEMPFAIL of sysexits.h, and that of timeout(1).
_USER_ERROR = 2  # A mistake in flags or input.
# Signals that come from outside, when a machine is taken away; the others a program raises by its
# own fault.
_OUTSIDE = frozenset(
    128 + n for n in (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
)
MAX_FRUITLESS = 3  # Failures in a row without a new step, after which nothing starts again.
_BACKOFF_S, _LONGEST_BACKOFF_S = 0.5, 5.0


class Kind(enum.StrEnum):
    """Cause of an end."""

    ERROR = "error"
    PREEMPTION = "preemption"
    USER_ERROR = "user error"


def kind_of(exit_code: int) -> Kind:
    """Returns what the exit code of a replica says of its end, wherever it ran."""
    if exit_code == _USER_ERROR:
        return Kind.USER_ERROR
    return Kind.PREEMPTION if exit_code in _OUTSIDE else Kind.ERROR


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """Used restarts after errors and, counted apart, after preemptions."""

    errors: int = 0
    preemptions: int = 0
    fruitless: int = 0  # Failures in a row without a new step.
    step: int | None = None  # The highest that was reported, or None.
    before: int = 0  # The highest at the failure before, or where the job resumed.

    @property
    def backoff_s(self) -> float:
        """Wait before the next start: none while the job gets on."""
        return min(_LONGEST_BACKOFF_S, _BACKOFF_S * (2**self.fruitless - 1))

    def noted(self, step: int | None) -> Self:
        """Returns the budget after a report of this step, or of none."""
        if step is None:
            return self
        if self.step is None:
            return dataclasses.replace(self, step=step, before=step)
        return dataclasses.replace(self, step=max(step, self.step))

    def charged(
        self,
        kind: Kind,
        exit_code: int,
        max_restarts: int,
        *,
        reports: bool = True,
        fruitless: float = MAX_FRUITLESS,
    ) -> tuple[Self, str]:
        """Returns the budget after an end, and why nothing can start again; empty if it can.

        Args:
          kind: Cause of the end.
          exit_code: Exit code of the replica.
          max_restarts: Bound on each count.
          reports: Whether the program reports its steps; one that does not is believed to get on.
          fruitless: Number of failures in a row without a new step that ends the job.
        """
        if kind is Kind.USER_ERROR:
            return self, "it would fail again"
        in_a_row = self.fruitless + (exit_code != SAVED)  # Who saves and leaves has not failed.
        if (self.step or 0) > self.before or (self.step is None and not reports):
            in_a_row = 0
        after = dataclasses.replace(self, fruitless=in_a_row, before=self.step or 0)
        if in_a_row >= fruitless:
            if fruitless == 1:
                return after, "it failed and came no further than before"
            return after, f"{fruitless} failures in a row without a new step"
        count = f"{kind}s"
        used = getattr(self, count)
        if used >= max_restarts:
            return after, f"no restart after {count} is left (max_restarts: {max_restarts})"
        return dataclasses.replace(after, **{count: used + 1}), ""


class Follows(enum.Enum):
    """Consequence of the end of a replica that ended by itself, or is taken for frozen, on this machine."""

    DONE = enum.auto()  # The job is done; the other replicas end.
    NOTHING = enum.auto()
    RESTART_ONE = enum.auto()  # The others go on.
    RESTART_ALL = enum.auto()  # All others are stopped first.


def decide(role: str, strategy: str, exit_code: int) -> Follows:
    """Returns what follows the end of a replica, as far as its budget allows."""
    if exit_code == 0:
        return Follows.DONE if role == "chief" else Follows.NOTHING
    # Under parameter servers the chief gives a dead worker's work to others until it is back; but
    # one that leaves with 143 has had all others save and leave. An evaluator only reads
    # checkpoints.
    if role == "evaluator" or (
        strategy == "parameter_server" and role == "worker" and exit_code != SAVED
    ):
        return Follows.RESTART_ONE
    return Follows.RESTART_ALL
