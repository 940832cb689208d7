"""What follows when a training job on Vertex AI has ended: another attempt, on which machines and for how long, or nothing.

    order = decide(attempts, Bounds(choices=3, replicas=4, machine_hours=20.0))
    isinstance(order, Again)  # then order.choice and order.timeout_s; else order.why and order.exit_code

An attempt is one custom job; all attempts have one job directory, so each goes on where the one before had saved.
"""

import dataclasses
import enum
import itertools
import re
from collections.abc import Iterator, Sequence

# Exit codes: EX_TEMPFAIL of sysexits.h, that of timeout(1), and a trainer's.
NO_CAPACITY, TIMED_OUT, SAVED = 75, 124, 143
_LEAST_S = 10.0  # In less than this no machine trains anything.
# The first is what Vertex AI's page on the training service says. A Spot machine that is taken "fails with a STOCKOUT
# error", says the page on Spot VMs; that this word is in the error's text is a guess.
_STOCKOUT = re.compile("resources are insufficient|stockout|quota|RESOURCE_EXHAUSTED", re.IGNORECASE)
_RESOURCE_EXHAUSTED = 8
_NON_ZERO = re.compile(r"non-zero status of (\d+)")


class Ending(enum.StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    STOCKOUT = "stockout"  # no machines or no quota for them, or they were taken away
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """What all attempts together may take."""

    replicas: int  # Of each attempt.
    choices: int = 1  # How many the cluster has.
    max_restarts: int = 5  # After failures and, counted apart, after machines were taken away.
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
    RESOURCE_EXHAUSTED, as such a quota has, is a guess, and so is that a job for whose machines nobody waits any longer
    is EXPIRED.
    """
    kind = state.removeprefix("JOB_STATE_")
    if kind in ("SUCCEEDED", "CANCELLED"):
        return Ending(kind.lower())
    if code == _RESOURCE_EXHAUSTED or kind == "EXPIRED" or lacks_capacity(message):
        return Ending.STOCKOUT
    return Ending.FAILED


def lacks_capacity(message: str) -> bool:
    """Whether an error of Vertex AI says that there are no machines, or no quota for them."""
    return bool(_STOCKOUT.search(message))


def exit_code(message: str) -> int:
    """That of the replica which the error of a job blames; 1 if it names none."""
    found = _NON_ZERO.search(message)
    return (int(found[1]) if found else 0) or 1


def decide(attempts: Sequence[Attempt], bounds: Bounds) -> Again | Over:
    """What follows after these attempts, the last of which has just ended."""
    choice, enough = 0, None
    if attempts:
        last = attempts[-1]
        if last.ending is Ending.SUCCEEDED:
            return Over(why="done", exit_code=0)
        choice, enough = _after(attempts, bounds)
    # Before all else: at its time limit a job ends as if it had failed or been cancelled.
    left_s, why = min(_left(attempts, bounds), default=(None, ""))
    if left_s is not None and left_s < _LEAST_S:
        return Over(why=why, exit_code=TIMED_OUT)
    return enough or Again(choice=choice, timeout_s=None if left_s is None else int(left_s))


def _after(attempts: Sequence[Attempt], bounds: Bounds) -> tuple[int, Over | None]:
    """The choice that is next, and why there is none."""
    last = attempts[-1]
    if last.ending is Ending.CANCELLED:
        return last.choice, Over(why="cancelled", exit_code=SAVED)
    if last.ending is Ending.STOCKOUT and not last.came_further:
        nothing = (each.ending is Ending.STOCKOUT and not each.came_further for each in reversed(attempts))
        dry = len(list(itertools.takewhile(bool, nothing)))
        none = Over(why=f"no capacity for any of its {bounds.choices} choices of machines", exit_code=NO_CAPACITY)
        return (last.choice + 1) % bounds.choices, none if dry >= bounds.choices else None
    if not last.came_further:
        return last.choice, Over(why="it failed and came no further than before", exit_code=last.exit_code)
    # The same machines after a failure; where some were taken away, those that were wanted first may be back.
    choice, what = (0, "taken away") if last.ending is Ending.STOCKOUT else (last.choice, "failed")
    restarts = sum(each.ending is last.ending and each.came_further for each in attempts)
    code = NO_CAPACITY if last.ending is Ending.STOCKOUT else last.exit_code
    enough = Over(why=f"{what} {restarts} times, and max_restarts is {bounds.max_restarts}", exit_code=code)
    return choice, enough if restarts > bounds.max_restarts else None


def _left(attempts: Sequence[Attempt], bounds: Bounds) -> Iterator[tuple[float, str]]:
    """For each limit the seconds that it leaves the next attempt, and what is told when they are used up."""
    if bounds.timeout_s is not None:
        used_s = sum(each.seconds for each in attempts)
        yield bounds.timeout_s - used_s, "the time limit (scheduling.timeout) is reached"
    if bounds.machine_hours is not None:
        hours = bounds.machine_hours - sum(each.machine_hours for each in attempts)
        yield hours * 3600 / bounds.replicas, f"the {bounds.machine_hours:g} machine-hours that it may take are used up"
