"""One restart policy for all back ends: what an exit code means, who starts again, and when it is enough.

    kind_of(143) is Kind.PREEMPTION
    decide("worker", "multi_worker_mirrored", 137) is Follows.RESTART_ALL
    budget, why = budget.charged(Kind.ERROR, 1, max_restarts=5)  # Nothing starts again if there is a `why`.
    order = next_attempt(attempts, Bounds(choices=3, replicas=4))  # Again(...), or Over(...)

| end | kind | follows |
| --- | --- | --- |
| exit code 2 | user error | nothing: it would fail again |
| 143; 137, 130, 129 from outside; lost machines | preemption | a restart, of `max_restarts` after preemptions |
| any other, and a frozen replica | error | a restart, of `max_restarts` after errors |

A row of failures without a new step ends the job. All functions are pure. `decide` is about the replicas that `supervisor`
starts; `next_attempt` is about custom jobs of Vertex AI, of which each is one attempt of all replicas. An evaluator has a budget
of its own, and its failures never end the job.
"""

import dataclasses
import enum
import itertools
import math
import signal
from collections.abc import Iterator, Sequence
from typing import Self

from common.errors import UserError

SAVED = 128 + signal.SIGTERM  # Saved and yielding.
KILLED = 128 + signal.SIGKILL
NO_CAPACITY, TIMED_OUT = 75, 124  # Exit codes: EX_TEMPFAIL of sysexits.h, and that of timeout(1).
_USER_ERROR = 2  # A mistake in flags or input.
# Signals that come from outside, when a machine is taken away; the others a program raises by its own fault.
_OUTSIDE = frozenset(128 + n for n in (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM))
_MAX_FRUITLESS = 3  # Failures in a row without a new step, after which nothing starts again.
_BACKOFF_S, _LONGEST_BACKOFF_S = 0.5, 5.0
_LEAST_S = 10.0  # In so little time no machine trains anything.


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

    def noted(self, step: int) -> Self:
        """Returns the budget after a report of this step."""
        if self.step is None:
            return dataclasses.replace(self, step=step, before=step)
        return dataclasses.replace(self, step=max(step, self.step))

    def charged(
        self, kind: Kind, exit_code: int, max_restarts: int, *, reports: bool = True, fruitless: float = _MAX_FRUITLESS
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
    # Under parameter servers the chief gives a dead worker's work to others until it is back; but one that leaves with
    # 143 has had all others save and leave. An evaluator only reads checkpoints.
    if role == "evaluator" or (strategy == "parameter_server" and role == "worker" and exit_code != SAVED):
        return Follows.RESTART_ONE
    return Follows.RESTART_ALL


class Ending(enum.StrEnum):
    """End of an attempt."""

    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    STOCKOUT = "stockout"  # No machines or no quota for them, or they were taken away.
    LOST = "lost"  # By a failure of the infrastructure: of its machines, or of what had launched it.
    FAILED = "failed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """A custom job that has ended; all attempts of a training have one job directory."""

    choice: int  # Which of the cluster's choices it ran on.
    ending: Ending
    step_before: int  # Of the newest checkpoint when it was submitted; -1 if there was none.
    step_after: int  # And when it had ended.
    seconds: float  # That its machines ran.
    replicas: int
    exit_code: int = 1  # Of the replica that failed, if one did.

    @property
    def machine_hours(self) -> float:
        """Hours of all its machines together."""
        return self.seconds * self.replicas / 3600

    @property
    def is_dry(self) -> bool:
        """Whether it came no further for want of machines."""
        return self.ending is Ending.STOCKOUT and self.step_after <= self.step_before

    def charged_to(self, budget: Budget, bounds: "Bounds", *, is_earlier: bool) -> tuple[Budget, str]:
        """Returns the budget after it, and why no other may follow; how an earlier command ended keeps none from it."""
        kind = kind_of(self.exit_code) if self.ending is Ending.FAILED else Kind.PREEMPTION
        is_free = self.is_dry or self.ending in (Ending.SUCCEEDED, Ending.CANCELLED)
        if is_free or (is_earlier and kind is Kind.USER_ERROR):
            return budget, ""
        budget = dataclasses.replace(budget, step=self.step_after, before=self.step_before)
        # Machines that are billed are not given to a program that fails before its first new checkpoint.
        fruitless = 1 if self.ending is Ending.FAILED else _MAX_FRUITLESS
        fruitless = math.inf if is_earlier else fruitless
        return budget.charged(kind, KILLED, bounds.max_restarts, fruitless=fruitless)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """Limits on all attempts together."""

    replicas: int  # Of each attempt.
    choices: int = 1  # Number of the cluster's choices of machines.
    max_restarts: int = 5  # After errors and, counted apart, after preemptions.
    timeout_s: float | None = None
    machine_hours: float | None = None

    def left_s(self, attempts: Sequence[Attempt]) -> Iterator[tuple[float, str]]:
        """Yields for each limit the seconds that it leaves the next attempt, and what to say when none are left."""
        if self.timeout_s is not None:
            used_s = sum(attempt.seconds for attempt in attempts)
            used = f"{used_s:,.0f} of {self.timeout_s:,.0f} s"
            yield self.timeout_s - used_s, f"the time limit (scheduling.timeout) is used up: {used}"
        if self.machine_hours is not None:
            used_s = sum(attempt.seconds * attempt.replicas for attempt in attempts)
            used = f"{used_s / 3600:.2f} of {self.machine_hours:g}"
            left_s = (self.machine_hours * 3600 - used_s) / self.replicas
            yield left_s, f"the machine-hours (--max-machine-hours) are used up: {used}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Again:
    """A job is to be submitted."""

    choice: int
    timeout_s: int | None  # Its time limit.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Over:
    """No other job is to be submitted."""

    why: str
    exit_code: int


def first_attempt(bounds: Bounds, earlier: Sequence[Attempt]) -> Again:
    """Returns the first attempt of a command; a `UserError` says which limit earlier commands have used up."""
    order = next_attempt([], bounds, earlier)
    if isinstance(order, Over):
        raise UserError(f"{order.why}; nothing is submitted; allow more")
    return order


def next_attempt(attempts: Sequence[Attempt], bounds: Bounds, earlier: Sequence[Attempt] = ()) -> Again | Over:
    """Returns what follows after these attempts of one command, the last of which has just ended.

    The bounds hold for all attempts, of `earlier` commands too. A stockout goes on to the next choice of machines; where
    machines were taken away after a new checkpoint, the first may be back.
    """
    last = attempts[-1] if attempts else None
    if last and last.ending is Ending.SUCCEEDED:
        return Over(why="done", exit_code=0)
    # Before all else: at its time limit a job ends as if it had failed or been cancelled.
    left_s, why = min(bounds.left_s([*earlier, *attempts]), default=(None, ""))
    if left_s is not None and left_s <= _LEAST_S:
        return Over(why=why, exit_code=TIMED_OUT)
    if last and last.ending is Ending.CANCELLED:
        return Over(why="cancelled", exit_code=SAVED)
    budget = Budget()
    for number, attempt in enumerate([*earlier, *attempts], -len(earlier)):
        budget = dataclasses.replace(budget, fruitless=budget.fruitless if number else 0)
        budget, why = attempt.charged_to(budget, bounds, is_earlier=number < 0)
        if why:
            return Over(why=why, exit_code=NO_CAPACITY if attempt.ending is Ending.STOCKOUT else attempt.exit_code)
    choice = last.choice if last else 0
    if last and last.ending is Ending.STOCKOUT:
        num_dry = len(list(itertools.takewhile(lambda attempt: attempt.is_dry, reversed(attempts))))
        if num_dry >= bounds.choices:
            why = f"no capacity for any of its {bounds.choices} choices of machines"
            return Over(why=why, exit_code=NO_CAPACITY)
        choice = (choice + 1) % bounds.choices if num_dry else 0
    # An earlier command may have had more choices.
    return Again(choice=choice if choice < bounds.choices else 0, timeout_s=None if left_s is None else int(left_s))
