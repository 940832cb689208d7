"""Sends a run and, where somebody waits for it, goes on with training that was given up, as `next_attempt` decides."""

import contextlib
import functools
import itertools
import sys
import time
from collections.abc import Iterator, Sequence

from google.cloud import aiplatform_v1 as v1

from common.errors import UserError
from common.storage.files import delete_files, stat_file
from components.train.backends.attempts import RECORD, Again, JobStore, next_attempt
from components.train.backends.vertex_client import CloudLogs, Ending, ending, replica_name
from pipelines.vertex import client, watch
from pipelines.vertex.submission import Submission

_TAIL = 10
_END_POLLS = 7  # A cancelled job has half a minute to save.


def recorded(submission: Submission, store: JobStore) -> list[v1.PipelineJob]:
    """Reads the record of a run's attempts, and returns its pipeline jobs, all of which have ended; refuses one that goes on.

    What became of an attempt that nobody waited for is added; it is written with the next one.
    """
    runs = client.runs(run=submission.run)
    for run in runs:
        if watch.is_live(run):
            raise UserError(
                f"{_id(run)} is still going on; wait for it, or --cancel {submission.run}"
            )
    store.load()
    if store.attempts and not store.attempts[-1].ending:
        run = next((run for run in runs if _id(run) == store.attempts[-1].display_name), None)
        _complete(store, _training_jobs(store, submission), run)
    return runs


def run(
    submission: Submission, store: JobStore, runs: Sequence[v1.PipelineJob], *, wait: bool
) -> int:
    """Sends the run; where it waits, training that was given up goes on in another. Returns 0 if the last has ended well.

    Args:
      submission: What to send.
      store: Record of its attempts.
      runs: Its earlier pipeline jobs.
      wait: Whether to follow it to its end.
    """
    names = {*map(_id, runs), *(attempt.display_name for attempt in store.attempts)}
    numbers = itertools.count(2)
    num_earlier = len(store.attempts)
    is_new = not stat_file(submission.record)
    if is_new:
        submission.save()
    while isinstance(order := next_attempt(store.attempts, submission.bounds, num_earlier), Again):
        job_id = submission.run
        while job_id in names:
            job_id = f"{submission.run}-{next(numbers)}"
        names.add(job_id)
        send = functools.partial(client.send, submission, job_id, order)
        try:
            attempt = store.submit(job_id, order, send)
        except UserError:
            if is_new:
                with contextlib.suppress(UserError, ConnectionError):
                    delete_files([submission.record, f"{store.job_dir}/{RECORD}"])
            raise
        if not is_new:
            submission.save()  # With what this command changes of it.
        is_new = False
        print(f"submitted {job_id}: {client.link(attempt.name)}", flush=True)
        watch.show(f"{attempt.shape}, from step {max(0, attempt.step_before):,}")
        if not wait:
            return 0
        job = watch.follow(attempt.name, store.job_dir)
        training_jobs = _training_jobs(store, submission)
        _complete(store, training_jobs, job)
        store.write(store.attempts)
        if watch.state_of(job) == "SUCCEEDED":
            return 0
        if watch.state_of(job) == "CANCELLED":
            print(f"{job_id}: cancelled", file=sys.stderr)
            return 1
        failures = _failures(job, training_jobs, submission)
        print(*filter(None, [job.error.message, *failures]), sep="\n", file=sys.stderr)
        if attempt.ending in (None, Ending.SUCCEEDED):
            return 1  # It was another step that failed.
        watch.show(f"training: {attempt.ending}, at step {max(0, attempt.step_after):,}")
    print(f"training is given up: {order.why}", file=sys.stderr)
    return 1


def _id(run: v1.PipelineJob) -> str:
    return run.name.rpartition("/")[2]


def _training_jobs(store: JobStore, submission: Submission) -> list[v1.CustomJob]:
    """Returns the jobs of the last attempt, once they have ended; refuses one that goes on without its pipeline job."""
    known = {name for attempt in store.attempts for name in attempt.jobs}
    for polls in range(_END_POLLS):
        if polls:
            time.sleep(watch.POLL_S)
        jobs = [job for job in client.custom_jobs(submission.run) if job.name not in known]
        if all(job.end_time for job in jobs):
            break
    for job in jobs:
        if not ending(job):
            number = job.name.rpartition("/")[2]
            where = (
                f"--project {submission.values['project']} --region {submission.values['location']}"
            )
            raise UserError(
                f"training job {number} of {submission.run} is still going on; wait for it, or: "
                f"gcloud ai custom-jobs cancel {number} {where}"
            )
    return jobs


def _failed_steps(run: v1.PipelineJob) -> dict[str, v1.PipelineTaskDetail]:
    return {step: task for step, task in watch.steps(run) if task.state.name == "FAILED"}


def _complete(store: JobStore, jobs: Sequence[v1.CustomJob], run: v1.PipelineJob | None) -> None:
    """Completes the last attempt, or takes it out if there was no training."""
    failed = _failed_steps(run).get("train") if run else None
    if jobs:
        # Whoever cancels training ends its step; cancelled after that, it was by the exit handler:
        # the launcher was lost.
        is_left = (
            failed and failed.end_time and jobs[-1].end_time and jobs[-1].end_time > failed.end_time
        )
        is_lost = (
            bool(is_left)
            and jobs[-1].state.name == "JOB_STATE_CANCELLED"
            and watch.state_of(run) == "FAILED"
        )
        store.complete(jobs, is_lost=is_lost)
    elif (
        failed and (how := ending(failed)) is not Ending.FAILED
    ):  # Its job was refused, or not made.
        store.refuse(" ".join(failed.error.message.split()), how)
    else:
        store.attempts.pop()


def _failures(
    run: v1.PipelineJob, jobs: Sequence[v1.CustomJob], submission: Submission
) -> Iterator[str]:
    """Yields each step that has failed and why: of the training which replica, and its last lines."""
    for step, task in _failed_steps(run).items():
        why, job = task.error.message, task.executor_detail.container_detail.main_job
        replica, roles = "", tuple[str, ...]()
        if step == "train" and jobs:
            why, job, roles = (
                jobs[-1].error.message or why,
                jobs[-1].name,
                tuple(submission.cluster.pools),
            )
            replica = replica_name(why, roles)
        yield f"{step}{f' ({replica})' if replica else ''} failed: {' '.join(why.split())}"
        try:
            logs = CloudLogs(submission.values["project"], job.rpartition("/")[2], roles)
            lines = [
                text for name, text in (logs.new() if job else ()) if name == replica or not replica
            ]
        except (OSError, UserError) as error:
            lines = [f"({error})"]
        yield from (f"  {line}" for line in lines[-_TAIL:])
