"""Attempts of a training on Vertex AI: their record in the job directory, and what follows each.

store = JobStore("gs://bucket/job")
store.load()
order = next_attempt(store.attempts, Bounds(cluster=cluster), num_earlier=len(store.attempts))   #
Again(...), or Over(...) attempt = store.submit("training-1", order, send)
store.complete([custom_job])                                                                     #
when the job has ended store.write(store.attempts)

Each custom job is one attempt of all replicas. What an exit code means, and how many restarts there
are after what, is in `restart_policy`, as for the replicas that `supervisor` starts.
"""

import contextlib
import dataclasses
import datetime
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pydantic
import pydantic.dataclasses

from common import documents
from common.errors import UserError, reading
from common.google_cloud import RefusedError
from common.storage.files import list_folder, write_bytes
from common.storage.storage import storage_of
from components.train.backends.vertex_client import Ending, NoCapacityError, ending, exit_code
from components.train.cluster.cluster_file import Cluster
from components.train.supervision.restart_policy import (
    KILLED,
    MAX_FRUITLESS,
    NO_CAPACITY,
    SAVED,
    TIMED_OUT,
    Budget,
    Kind,
    kind_of,
)

RECORD = "attempts.json"  # Each job that was submitted for the directory, and how it ended.
_MEND = "put the right one back, or delete it, which forgets what the job has used of its limits"
_LEAST_S = 10.0  # In so little time no machine trains anything.


@pydantic.dataclasses.dataclass(kw_only=True)
class Attempt:
    """A custom job, as it is recorded; all attempts of a training have one job directory."""

    display_name: str
    name: str = ""  # Of the resource; empty if none was made.
    submitted: str = ""  # When, in UTC.
    choice: int  # Which of the cluster's choices it runs on.
    machines: dict[str, str]  # By role, for people.
    replicas: int
    timeout_s: int | None = None
    step_before: int  # Of the newest checkpoint when it was submitted; -1 if there was none.
    # The others are of its end.
    ending: Ending | None = None  # None of one that has not ended, as far as is known.
    step_after: int = -1
    seconds: float = 0.0  # That its machines ran.
    exit_code: int = 1  # Of the replica that failed, if one did.
    error: str = ""
    jobs: list[str] = dataclasses.field(
        default_factory=list
    )  # More than one if what had launched them was lost.

    @pydantic.computed_field
    @property
    def machine_hours(self) -> float:
        """Hours of all its machines together."""
        return self.seconds * self.replicas / 3600

    @property
    def is_dry(self) -> bool:
        """Whether it came no further for want of machines."""
        return self.ending is Ending.STOCKOUT and self.step_after <= self.step_before

    @property
    def shape(self) -> str:
        """Its machines in one line."""
        return ", ".join(f"{role}: {machines}" for role, machines in self.machines.items())


_Record = pydantic.TypeAdapter(list[Attempt])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """Limits on all attempts together."""

    cluster: Cluster  # Its choices of machines are tried, and `max_restarts` is heeded.
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
            left_s = (self.machine_hours * 3600 - used_s) / self.cluster.replicas
            yield left_s, f"the machine-hours (--max-machine-hours) are used up: {used}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Again:
    """A job is to be submitted."""

    choice: int  # Which of the cluster's choices it runs on,
    machines: Cluster  # and those machines.
    timeout_s: int | None  # Its time limit.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Over:
    """No other job is to be submitted."""

    why: str
    exit_code: int


def first_attempt(attempts: Sequence[Attempt], bounds: Bounds) -> Again:
    """Returns the first attempt of a command; a `UserError` says which limit earlier commands have used up."""
    order = next_attempt(attempts, bounds, len(attempts))
    if isinstance(order, Over):
        raise UserError(f"{order.why}; nothing is submitted; allow more")
    return order


def next_attempt(attempts: Sequence[Attempt], bounds: Bounds, num_earlier: int = 0) -> Again | Over:
    """Returns what follows after these attempts, the last of which has just ended.

    The bounds hold for all attempts, but how one of the first `num_earlier`, those of earlier
    commands, has ended keeps none from following. A stockout goes on to the next choice of
    machines; where machines were taken away after a new checkpoint, the first may be back.
    """
    new = attempts[num_earlier:]
    last = new[-1] if new else None
    if last and last.ending is Ending.SUCCEEDED:
        return Over(why="done", exit_code=0)
    # Before all else: at its time limit a job ends as if it had failed or been cancelled.
    left_s, why = min(bounds.left_s(attempts), default=(None, ""))
    if left_s is not None and left_s <= _LEAST_S:
        return Over(why=why, exit_code=TIMED_OUT)
    if last and last.ending is Ending.CANCELLED:
        return Over(why="cancelled", exit_code=SAVED)
    budget = Budget()
    for number, attempt in enumerate(attempts, -num_earlier):
        is_earlier = number < 0
        kind = kind_of(attempt.exit_code) if attempt.ending is Ending.FAILED else Kind.PREEMPTION
        budget = dataclasses.replace(
            budget,
            step=attempt.step_after,
            before=attempt.step_before,
            fruitless=budget.fruitless if number else 0,
        )
        is_free = attempt.is_dry or attempt.ending in (Ending.SUCCEEDED, Ending.CANCELLED)
        if is_free or (is_earlier and kind is Kind.USER_ERROR):
            continue
        # Machines that are billed are not given to a program that fails before its first new
        # checkpoint.
        fruitless = 1 if attempt.ending is Ending.FAILED else MAX_FRUITLESS
        budget, why = budget.charged(
            kind,
            KILLED,
            bounds.cluster.scheduling.max_restarts,
            fruitless=math.inf if is_earlier else fruitless,
        )
        if why:
            return Over(
                why=why,
                exit_code=NO_CAPACITY if attempt.ending is Ending.STOCKOUT else attempt.exit_code,
            )
    choices, choice = bounds.cluster.choices, 0
    if len(new) >= len(choices) and all(attempt.is_dry for attempt in new[-len(choices) :]):
        return Over(
            why=f"no capacity for any of its {len(choices)} choices of machines",
            exit_code=NO_CAPACITY,
        )
    if last and (last.is_dry or last.ending is not Ending.STOCKOUT):
        choice = (last.choice + last.is_dry) % len(
            choices
        )  # An earlier command may have had more choices.
    return Again(
        choice=choice, machines=choices[choice], timeout_s=None if left_s is None else int(left_s)
    )


class JobStore:
    """Reads a job's checkpoints in its bucket, and keeps the record of its attempts there.

    Attributes:
      attempts: The record, oldest first.
    """

    def __init__(self, job_dir: str) -> None:
        self.job_dir = job_dir
        self.attempts: list[Attempt] = []
        self._path, self._version = f"{job_dir}/{RECORD}", ""

    def step(self) -> int:
        """Returns the step of the newest checkpoint; -1 if there is none."""
        files = list_folder(f"{self.job_dir}/checkpoints")[1]
        return max(
            (int(step) for file in files for step in re.findall(r"/ckpt-(\d+)\.index$", file.path)),
            default=-1,
        )

    def load(self) -> None:
        """Reads the record; what `write` then writes is its next version."""
        content, self._version = storage_of(self._path).read(self._path, documents.MOST_BYTES) or (
            b"[]",
            "",
        )
        with reading(self._path, _MEND):
            self.attempts = _Record.validate_json(content)

    def submit(self, display_name: str, order: Again, send: Callable[[], str]) -> Attempt:
        """Records an attempt and submits it; a refusal takes it out again, and lack of quota is how it has ended.

        Args:
          display_name: Of the job.
          order: Its machines and time limit.
          send: Submits the job, and returns the name of the resource.

        Returns:
          The attempt; it has ended if there is no capacity for it.
        """
        attempt = Attempt(
            display_name=display_name,
            submitted=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            choice=order.choice,
            machines={
                role: f"{pool.replicas} x {pool.shape}"
                for role, pool in order.machines.pools.items()
            },
            replicas=order.machines.replicas,
            timeout_s=order.timeout_s,
            step_before=self.step(),
        )
        self.write([*self.attempts, attempt])
        try:
            attempt.name = send()
        except NoCapacityError as error:
            self.refuse(str(error))
        except UserError:  # Without an answer it may have begun.
            with contextlib.suppress(UserError, ConnectionError):
                self.write(self.attempts[:-1])
            raise
        return attempt

    def complete(self, jobs: Sequence[Any], *, is_lost: bool = False) -> None:
        """Adds to the last attempt how it has ended.

        Args:
          jobs: Its jobs (`CustomJob` messages), in their order; more than one if what had launched
            them was lost.
          is_lost: Whether the last job was cancelled because what had launched it was lost.
        """
        attempt = self.attempts[-1]
        attempt.step_after = self.step()
        ran = [
            (job.end_time - job.start_time).total_seconds()
            for job in jobs
            if job.start_time and job.end_time
        ]
        attempt.seconds = sum(ran)
        attempt.error = " ".join(jobs[-1].error.message.split())
        attempt.exit_code = exit_code(attempt.error)
        attempt.ending = Ending.LOST if is_lost else ending(jobs[-1])
        attempt.jobs = [job.name for job in jobs]

    def refuse(self, error: str, how: Ending = Ending.STOCKOUT) -> None:
        """Completes the last attempt, for which no job was made."""
        attempt = self.attempts[-1]
        attempt.error, attempt.ending, attempt.step_after = error, how, attempt.step_before

    def write(self, attempts: list[Attempt]) -> None:
        """Replaces the record, unless another command has done so meanwhile: of two commands one goes on."""
        content = _Record.dump_json(attempts, indent=1, exclude_none=True) + b"\n"
        try:
            self._version = write_bytes(self._path, content, if_version=self._version).version
        except FileExistsError:
            raise RefusedError(
                f"{self.job_dir}: another command submits jobs for it; end that, or wait"
            ) from None
        self.attempts = attempts
