"""What follows when a training job on Vertex AI has ended: another attempt, on which machines and for how long, or nothing.

    order = decide(attempts, Bounds(choices=3, replicas=4, machine_hours=20.0), earlier)
    isinstance(order, Again)  # then order.choice and order.timeout_s; else order.why and order.exit_code

An attempt is one custom job; all attempts have one job directory, so each goes on where the one before had saved. What
their exit codes mean, and when no restart is left, `backends.restarts` says.
"""

import dataclasses
import enum
import itertools
import re
from collections.abc import Iterator, Sequence

from common.errors import UserError
from components.train.backends.restarts import (
    FAILS_AGAIN,
    FRUITLESS,
    NO_PROGRESS,
    SAVED,
    Kind,
    kind_of,
    no_restart_left,
)

NO_CAPACITY, TIMED_OUT = 75, 124  # Exit codes: EX_TEMPFAIL of sysexits.h, and that of timeout(1).
_LEAST_S = 10.0  # In so little time no machine trains anything.
# The first is what Vertex AI's page on the training service says. A Spot machine that is taken "fails with a STOCKOUT
# error", says the page on Spot VMs; that this word is in the error's text is a guess.
_STOCKOUT = re.compile("resources are insufficient|stockout|quota|RESOURCE_EXHAUSTED", re.IGNORECASE)
_RESOURCE_EXHAUSTED = 8
# Codes ABORTED, INTERNAL and UNAVAILABLE, and the text in "Understand the custom training service".
_INFRASTRUCTURE, _INTERNAL = {10, 13, 14}, re.compile("internal error", re.IGNORECASE)
_NON_ZERO = re.compile(r"non-zero status of (\d+)")


class Ending(enum.StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    STOCKOUT = "stockout"  # no machines or no quota for them, or they were taken away
    LOST = "lost"  # by a failure of the infrastructure: of its machines, or of what had launched it
    FAILED = "failed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """A job that has ended."""

    choice: int  # Which of the cluster's choices it ran on.
    ending: Ending
    step_before: int  # Of the newest checkpoint when it was submitted; -1 if there was none.
    step_after: int  # And when it had ended.
    seconds: float  # That its machines ran.
    replicas: int
    exit_code: int = 1  # Of the replica that failed, if one did.

    @property
    def machine_hours(self) -> float:
        """Of all its machines together."""
        return self.seconds * self.replicas / 3600

    @property
    def came_further(self) -> bool:
        """Whether it saved a step that was not there."""
        return self.step_after > self.step_before

    @property
    def kind(self) -> Kind | None:
        """Whose budget of restarts it is charged to; None if it needs none."""
        if self.ending is Ending.FAILED:
            return kind_of(self.exit_code)
        return Kind.PREEMPTION if self.ending in (Ending.STOCKOUT, Ending.LOST) else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """What all attempts together may take."""

    replicas: int  # Of each attempt.
    choices: int = 1  # How many the cluster has.
    max_restarts: int = 5  # After errors and, counted apart, after preemptions.
    timeout_s: float | None = None
    machine_hours: float | None = None


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


def ending(state: str, code: int, message: str) -> Ending:
    """How a job ended, by its state (`JOB_STATE_FAILED`) and the code and text of its error.

    A quota that is exceeded is a stockout, too: other machines have other quotas. That a stockout has the code
    RESOURCE_EXHAUSTED, as such a quota has, is a guess, and so are that a job for whose machines nobody waits any longer
    is EXPIRED, and what tells a failure of the infrastructure.
    """
    kind = state.removeprefix("JOB_STATE_")
    if kind in ("SUCCEEDED", "CANCELLED"):
        return Ending(kind.lower())
    if code == _RESOURCE_EXHAUSTED or kind == "EXPIRED" or _STOCKOUT.search(message):
        return Ending.STOCKOUT
    internal = code in _INFRASTRUCTURE or _INTERNAL.search(message)
    return Ending.LOST if internal and not _NON_ZERO.search(message) else Ending.FAILED


def exit_code(message: str) -> int:
    """That of the replica which the error of a job blames; 1 if it names none."""
    found = _NON_ZERO.search(message)
    return (int(found[1]) if found else 0) or 1


def begin(bounds: Bounds, earlier: Sequence[Attempt]) -> Again:
    """Returns the first attempt of a command after those of earlier ones; a `UserError` says which limit is used up."""
    order = decide([], bounds, earlier)
    if isinstance(order, Over):
        raise UserError(f"{order.why}; nothing is submitted; allow more")
    return order


def decide(attempts: Sequence[Attempt], bounds: Bounds, earlier: Sequence[Attempt] = ()) -> Again | Over:
    """Returns what follows after these attempts of one command, the last of which has just ended.

    The bounds are those of all attempts, of `earlier` commands too. How one of these ended keeps no command from
    beginning: whoever gives it may have mended something.
    """
    follows: int | Over = 0
    if attempts:
        if attempts[-1].ending is Ending.SUCCEEDED:
            return Over(why="done", exit_code=0)
        follows = _after(attempts, bounds)
    every = [*earlier, *attempts]
    # Before all else: at its time limit a job ends as if it had failed or been cancelled.
    left_s, why = min(_left(every, bounds), default=(None, ""))
    if left_s is not None and left_s <= _LEAST_S:
        return Over(why=why, exit_code=TIMED_OUT)
    if isinstance(follows, Over):
        return follows
    for kind in (Kind.ERROR, Kind.PREEMPTION):
        charged = [each for each in every if each.kind is kind and (each.came_further or each.ending is Ending.LOST)]
        if charged and (why := no_restart_left(kind, len(charged) - 1, bounds.max_restarts)):
            last = charged[-1]
            return Over(why=why, exit_code=NO_CAPACITY if last.ending is Ending.STOCKOUT else last.exit_code)
    # An earlier command may have had more choices.
    return Again(choice=follows if follows < bounds.choices else 0, timeout_s=None if left_s is None else int(left_s))


def _after(attempts: Sequence[Attempt], bounds: Bounds) -> int | Over:
    """Returns the choice that is next, or why there is none."""
    last = attempts[-1]
    if last.ending is Ending.CANCELLED:
        return Over(why="cancelled", exit_code=SAVED)
    if last.kind is Kind.USER_ERROR:
        return Over(why=FAILS_AGAIN, exit_code=last.exit_code)
    if last.came_further:
        # Where machines were taken away, those that were wanted first may be back.
        return 0 if last.ending is Ending.STOCKOUT else last.choice
    if last.ending is Ending.FAILED:
        return Over(why="it failed and came no further than before", exit_code=last.exit_code)
    alike = (each.ending is last.ending and not each.came_further for each in reversed(attempts))
    in_a_row = len(list(itertools.takewhile(bool, alike)))
    if last.ending is Ending.LOST:
        return Over(why=NO_PROGRESS, exit_code=last.exit_code) if in_a_row >= FRUITLESS else last.choice
    if in_a_row >= bounds.choices:
        return Over(why=f"no capacity for any of its {bounds.choices} choices of machines", exit_code=NO_CAPACITY)
    return (last.choice + 1) % bounds.choices


def _left(attempts: Sequence[Attempt], bounds: Bounds) -> Iterator[tuple[float, str]]:
    """For each limit the seconds that it leaves the next attempt, and what is told when they are used up."""
    if bounds.timeout_s is not None:
        used_s = sum(each.seconds for each in attempts)
        why = f"the time limit (scheduling.timeout) is used up: {used_s:,.0f} of {bounds.timeout_s:,.0f} s"
        yield bounds.timeout_s - used_s, why
    if bounds.machine_hours is not None:
        used_s = sum(each.seconds * each.replicas for each in attempts)
        used = f"{used_s / 3600:.2f} of {bounds.machine_hours:g}"
        why = f"the machine-hours (--max-machine-hours) are used up: {used}"
        yield (bounds.machine_hours * 3600 - used_s) / bounds.replicas, why
