"""Attempts of a training on Vertex AI: their record in the job directory, and what follows each.

    store = JobStore("gs://bucket/job")
    store.load()
    bounds = Bounds(cluster=cluster)
    order = next_attempt(store.attempts, bounds, num_earlier=len(store.attempts))
    if isinstance(order, Again):
        attempt = store.submit("training-1", order, send)
        ...  # Wait until the job has ended.
        store.complete([custom_job])
        store.write(store.attempts)

Each custom job is one attempt of all replicas. `restart_policy` defines the meaning of exit codes
and the number of restarts, as for the replicas that `supervisor` starts.
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

# File in the job directory with all jobs that were submitted for it, and how they ended.
RECORD = "attempts.json"
_MEND = "put the right one back, or delete it, which forgets what the job has used of its limits"
_LEAST_S = 10.0  # An attempt with less time than this could not train anything.


@pydantic.dataclasses.dataclass(kw_only=True)
class Attempt:
    """Record of one attempt: a custom job, or a run of the pipeline that starts one.

    All attempts of a training have the same job directory. The fields from `ending` on are set when
    the attempt has ended.

    Attributes:
      display_name: Display name of the job or run.
      name: Resource name; empty if none was created.
      region: Region of Vertex AI; empty if it is not recorded.
      submitted: Time of the submission in UTC, in ISO format.
      choice: Index in `Cluster.choices` of the machines that it runs on.
      machines: Number and shape of the machines by role, for people.
      replicas: Number of replicas of all roles.
      timeout_s: Time limit in seconds, or None.
      step_before: Step of the newest checkpoint at the submission; -1 if there was none.
      ending: How it ended; None if it has not ended, as far as is known.
      step_after: Step of the newest checkpoint at its end; -1 if there was none.
      seconds: Seconds for which its machines ran.
      exit_code: Exit code of the replica that failed; 1 if none is known, also after a success.
      error: Error message in one line; empty if there was no error.
      jobs: Resource names of its custom jobs. There are several if the pipeline's launcher was lost
        and started again.
    """

    display_name: str
    name: str = ""
    region: str = ""
    submitted: str = ""
    choice: int
    machines: dict[str, str]
    replicas: int
    timeout_s: int | None = None
    step_before: int
    ending: Ending | None = None
    step_after: int = -1
    seconds: float = 0.0
    exit_code: int = 1
    error: str = ""
    jobs: list[str] = dataclasses.field(default_factory=list)

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def machine_hours(self) -> float:
        """Hours that its machines ran, summed over all machines."""
        return self.seconds * self.replicas / 3600

    @property
    def is_dry(self) -> bool:
        """True if it ended for lack of machines without a new checkpoint."""
        return self.ending is Ending.STOCKOUT and self.step_after <= self.step_before

    @property
    def shape(self) -> str:
        """Machines in one line, such as `chief: 1 x n1-standard-4, worker: 2 x n1-standard-4`."""
        return ", ".join(f"{role}: {machines}" for role, machines in self.machines.items())


_Record = pydantic.TypeAdapter(list[Attempt])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """Limits on all attempts of a training together.

    Attributes:
      cluster: Cluster whose choices of machines are tried, and whose `max_restarts` applies.
      timeout_s: Maximum seconds of all attempts, or None.
      machine_hours: Maximum machine-hours of all attempts, or None.
    """

    cluster: Cluster
    timeout_s: float | None = None
    machine_hours: float | None = None

    def left_s(self, attempts: Sequence[Attempt]) -> Iterator[tuple[float, str]]:
        """Yields the time that each limit leaves for the next attempt; nothing if none is set.

        Yields:
          Seconds for which all replicas of `cluster` may still run at the same time, negative if
          the limit is exceeded, and the message for people if none are left.
        """
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
    """Decision to submit another job.

    Attributes:
      choice: Index in `Cluster.choices` of the machines that it runs on.
      machines: The cluster with these machines.
      timeout_s: Time limit of the job in seconds, or None.
    """

    choice: int
    machines: Cluster
    timeout_s: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Over:
    """Decision to submit no other job.

    Attributes:
      why: Reason, for people.
      exit_code: Exit code of the training.
    """

    why: str
    exit_code: int


def first_attempt(attempts: Sequence[Attempt], bounds: Bounds) -> Again:
    """Returns the decision to submit the first job of a command, on the first choice of machines.

    Args:
      attempts: Attempts of earlier commands for the job directory, all of which have ended.
      bounds: Limits on all attempts together.

    Raises:
      UserError: If the earlier attempts have used up `max_restarts`, or all but 10 s of the time or
        machine-hours. The message names the limit.
    """
    order = next_attempt(attempts, bounds, len(attempts))
    if isinstance(order, Over):
        raise UserError(f"{order.why}; nothing is submitted; allow more")
    return order


def next_attempt(attempts: Sequence[Attempt], bounds: Bounds, num_earlier: int = 0) -> Again | Over:
    """Decides what follows these attempts, all of which have ended.

    A command begins with the first choice of machines. After a stockout without a new checkpoint
    the next one is tried. If machines were taken away after a new checkpoint, the first choice is
    tried again, since they may be available again. After another end the choice stays the same.

    Args:
      attempts: All attempts of the training, oldest first.
      bounds: Limits on all attempts together.
      num_earlier: Number of the first attempts that earlier commands made. They count for the
        limits, but a success, cancellation or failure among them does not end this command.

    Returns:
      `Again`, or `Over` with the reason and the exit code: 0 after a success; 124 if at most 10 s
      of a limit are left; 143 after a cancellation; 75 if all choices have had a stockout in turn,
      or the last restart has had one; else that of the attempt after which none is allowed. None is
      allowed after a user error, a failure without a new checkpoint, three other ends in a row
      without one (stockouts that try another choice do not count), `max_restarts` restarts after
      errors, or as many after preemptions (stockouts without a new checkpoint do not count).
    """
    new = attempts[num_earlier:]
    last = new[-1] if new else None
    if last and last.ending is Ending.SUCCEEDED:
        return Over(why="done", exit_code=0)
    # The limits come before the other ends: Vertex AI reports a job that has reached its time limit
    # as failed or cancelled.
    left_s, why = min(bounds.left_s(attempts), default=(None, ""))
    if left_s is not None and left_s <= _LEAST_S:
        return Over(why=why, exit_code=TIMED_OUT)
    if last and last.ending is Ending.CANCELLED:
        return Over(why="cancelled", exit_code=SAVED)
    budget = Budget()
    # The budget is computed anew from the whole record. `number` is 0 for the first attempt of this
    # command, where failures in a row are counted from 0 again.
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
        # Machines cost money, so a program that fails without a new checkpoint gets none again.
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
        # The modulo returns to the first choice after the last one. It also covers a job that an
        # earlier command, whose cluster had more choices, has left running.
        choice = (last.choice + last.is_dry) % len(choices)
    return Again(
        choice=choice, machines=choices[choice], timeout_s=None if left_s is None else int(left_s)
    )


class JobStore:
    """Record of a training's attempts, the file `attempts.json` in the job directory.

    Attributes:
      job_dir: Job directory, in a bucket.
      attempts: Attempts, oldest first; empty before `load`.
    """

    def __init__(self, job_dir: str) -> None:
        self.job_dir = job_dir
        self.attempts: list[Attempt] = []
        self._path, self._version = f"{job_dir}/{RECORD}", ""

    def step(self) -> int:
        """Returns the step of the newest checkpoint in the job directory; -1 if there is none.

        Raises:
          UserError: If the storage refuses to list the directory.
          ConnectionError: If the storage does not answer.
        """
        files = list_folder(f"{self.job_dir}/checkpoints")[1]
        return max(
            (int(step) for file in files for step in re.findall(r"/ckpt-(\d+)\.index$", file.path)),
            default=-1,
        )

    def load(self) -> None:
        """Reads the record into `attempts`; without a file there are none.

        `write` then replaces only the version that was read.

        Raises:
          UserError: If the record is damaged, or the storage refuses to read it.
          ConnectionError: If the storage does not answer.
        """
        content, self._version = storage_of(self._path).read(self._path, documents.MOST_BYTES) or (
            b"[]",
            "",
        )
        with reading(self._path, _MEND):
            self.attempts = _Record.validate_json(content)

    def submit(
        self, display_name: str, order: Again, send: Callable[[], str], region: str = ""
    ) -> Attempt:
        """Records a new attempt and submits it.

        It is recorded first, so that another command that starts meanwhile knows of it. What
        becomes known afterwards (its resource name, or the stockout) is written only by `write`.

        Args:
          display_name: Display name of the job.
          order: Its machines and time limit.
          send: Submits the job and returns its resource name.
          region: Region of Vertex AI, by which later commands find the job.

        Returns:
          The attempt. If `send` raised `NoCapacityError`, it has already ended with a stockout.

        Raises:
          UserError: If `send` raises it, which removes the attempt from the record again; or if the
            record cannot be written, so that nothing is sent.
          ConnectionError: If Google Cloud does not answer. If `send` raises it, the job may have
            been created, so the attempt stays in the record.
        """
        attempt = Attempt(
            display_name=display_name,
            region=region,
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
        except UserError:  # After a ConnectionError the job may exist, so its record stays.
            with contextlib.suppress(UserError, ConnectionError):
                self.write(self.attempts[:-1])
            raise
        return attempt

    def complete(self, jobs: Sequence[Any], *, is_lost: bool = False) -> None:
        """Sets how the last attempt has ended, in its fields from `ending` on; does not write that.

        Args:
          jobs: Its jobs (`CustomJob` messages), at least one, oldest first; all have ended. There
            are several if the pipeline's launcher was lost and started again.
          is_lost: Whether the last job was cancelled because the launcher was lost.

        Raises:
          UserError: If the storage refuses to list the checkpoints.
          ConnectionError: If the storage does not answer.
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
        """Sets how the last attempt has ended if no job was created for it; does not write that.

        Args:
          error: Error message.
          how: How it ended.
        """
        attempt = self.attempts[-1]
        attempt.error, attempt.ending, attempt.step_after = error, how, attempt.step_before

    def write(self, attempts: list[Attempt]) -> None:
        """Replaces the record `attempts.json` in the bucket, and `attempts`.

        Raises:
          RefusedError: If another command has written the record since it was read or written here,
            so that only one of two commands continues.
          UserError: If the storage refuses to write it.
          ConnectionError: If the storage does not answer.
        """
        content = _Record.dump_json(attempts, indent=1, exclude_none=True) + b"\n"
        try:
            self._version = write_bytes(self._path, content, if_version=self._version).version
        except FileExistsError:
            raise RefusedError(
                f"{self.job_dir}: another command submits jobs for it; end that, or wait"
            ) from None
        self.attempts = attempts
