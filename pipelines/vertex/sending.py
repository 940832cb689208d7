"""Sends a run to Vertex AI, and sends it again if its training is given up.

`next_attempt` decides whether and how it goes on. That needs somebody who waits for the run.
"""

import contextlib
import functools
import itertools
import sys
import time
from collections.abc import Iterator, Sequence

from google.cloud import aiplatform_v1 as v1

from common.errors import UserError
from common.google_cloud import explained
from common.storage.files import delete_files, stat_file
from components.train.backends.attempts import RECORD, Again, JobStore, next_attempt
from components.train.backends.vertex_client import CloudLogs, Ending, ending, replica_name
from pipelines.vertex import client, watch
from pipelines.vertex.submission import Submission

_TAIL = 10
_END_POLLS = 7  # Long enough for a cancelled job, which has half a minute to save.


def recorded(submission: Submission, store: JobStore) -> list[v1.PipelineJob]:
    """Reads the record of a run's attempts into the store, and returns the run's pipeline jobs.

    The jobs are sorted, the newest first. If nobody waited for the last attempt, its ending is
    found out and added, or the attempt is removed if it has not come to the training. That is
    written to the bucket only with the next attempt.

    Raises:
      UserError: If a pipeline job of the run has not ended, a training job does not end within a
        minute, the record is damaged, or Google Cloud refuses a request.
      ConnectionError: If Google Cloud does not answer.
    """
    runs = client.runs(run=submission.run)
    for each in runs:
        if watch.is_live(each):
            raise UserError(
                f"{_id(each)} is still going on; wait for it, or --cancel {submission.run}"
            )
    store.load()
    if store.attempts and not store.attempts[-1].ending:
        run = next((run for run in runs if _id(run) == store.attempts[-1].display_name), None)
        _complete(store, _training_jobs(store, submission), run)
    return runs


def run(
    submission: Submission, store: JobStore, runs: Sequence[v1.PipelineJob], *, wait: bool
) -> int:
    """Sends a run. If it waits, it sends further attempts while training is given up and may go on.

    Prints what happens, and writes the submission (`run.json`) and its attempts (`attempts.json`)
    to the bucket.

    Args:
      submission: The run.
      store: Record of its attempts.
      runs: Its earlier pipeline jobs.
      wait: Whether to follow it to its end.

    Returns:
      The exit code: 0 if the run has succeeded, or was sent without waiting; 1 if it has failed or
      was cancelled, or if training is given up for good.

    Raises:
      UserError: If Google Cloud refuses a request (the records of a run that is new are deleted if
        its first attempt is refused), another command works on the run, or a training job goes on
        although its pipeline job has ended.
      ConnectionError: If Google Cloud does not answer while an attempt is sent, or after its end.
    """
    names = {*map(_id, runs), *(attempt.display_name for attempt in store.attempts)}
    numbers = itertools.count(2)
    num_earlier = len(store.attempts)
    is_new = not stat_file(submission.record)
    if is_new:
        submission.save()
    while isinstance(order := next_attempt(store.attempts, submission.bounds, num_earlier), Again):
        # The first attempt has the name of the run, and further ones get a number behind it.
        job_id = submission.run
        while job_id in names:
            job_id = f"{submission.run}-{next(numbers)}"
        names.add(job_id)
        send = functools.partial(client.send, submission, job_id, order)
        try:
            attempt = store.submit(job_id, order, send)
        except UserError:
            # Nothing was sent for a new run, so nothing of it is to be listed or resumed.
            if is_new:
                with contextlib.suppress(UserError, ConnectionError):
                    delete_files([submission.record, f"{store.job_dir}/{RECORD}"])
            raise
        if not is_new:
            submission.save()  # A resume may have changed some of its keys.
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
        # `follow` has cancelled a run whose training found no machines in time.
        is_expired = any(each.state.name == "JOB_STATE_EXPIRED" for each in training_jobs[-1:])
        if watch.state_of(job) == "CANCELLED" and not is_expired:
            print(f"{job_id}: cancelled", file=sys.stderr)
            return 1
        failures = _failures(job, training_jobs, submission)
        print(*filter(None, [explained(job.error.message), *failures]), sep="\n", file=sys.stderr)
        if attempt.ending in (None, Ending.SUCCEEDED):
            return 1  # Another step has failed, and more training does not help.
        watch.show(f"training: {attempt.ending}, at step {max(0, attempt.step_after):,}")
    print(f"training is given up: {order.why}", file=sys.stderr)
    return 1


def _id(run: v1.PipelineJob) -> str:
    return run.name.rpartition("/")[2]


def _training_jobs(store: JobStore, submission: Submission) -> list[v1.CustomJob]:
    """Returns the training jobs of the last attempt. Waits up to a minute for their end.

    The list is empty if the attempt has not come to the training.

    Raises:
      UserError: If one of them still goes on, or Google Cloud refuses the request.
      ConnectionError: If Google Cloud does not answer.
    """
    # All attempts have the run's name. Jobs of earlier ones are in the record.
    known = {name for attempt in store.attempts for name in attempt.jobs}
    for polls in range(_END_POLLS):
        if polls:
            time.sleep(watch.POLL_S)
        jobs = [job for job in client.jobs(submission.run) if job.name not in known]
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
    """Sets in the store how the last attempt has ended, or removes it; writes nothing.

    It is removed if it has no training job, unless its step `train` has failed for lack of capacity
    or because of the infrastructure.

    Args:
      store: Record of the attempts.
      jobs: Training jobs of the attempt, all of which have ended.
      run: Its pipeline job, if there is one.

    Raises:
      UserError: If the bucket refuses to list the checkpoints.
      ConnectionError: If the bucket does not answer.
    """
    failed = _failed_steps(run).get("train") if run else None
    if jobs:
        # If a user cancels the training, its step fails after the job has ended. If the step fails
        # first, the launcher was lost, and the pipeline's exit handler has cancelled the job.
        is_left = (
            failed and failed.end_time and jobs[-1].end_time and jobs[-1].end_time > failed.end_time
        )
        is_lost = bool(
            run
            and is_left
            and jobs[-1].state.name == "JOB_STATE_CANCELLED"
            and watch.state_of(run) == "FAILED"
        )
        store.complete(jobs, is_lost=is_lost)
    # Without a job, Vertex AI has refused it for lack of capacity, or could not make it.
    elif failed and (how := ending(failed)) and how is not Ending.FAILED:
        store.refuse(" ".join(failed.error.message.split()), how)
    else:
        store.attempts.pop()


def _failures(
    run: v1.PipelineJob, jobs: Sequence[v1.CustomJob], submission: Submission
) -> Iterator[str]:
    """Yields lines about each step that has failed: the reason, and the end of its log.

    Of the training, the log is that of the replica that has failed. A log that cannot be read is
    replaced by the error message.
    """
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
        yield f"{step}{f' ({replica})' if replica else ''} failed: {explained(why)}"
        try:
            logs = CloudLogs(submission.values["project"], job.rpartition("/")[2], roles)
            lines = [
                text for name, text in (logs.new() if job else ()) if name == replica or not replica
            ]
        except (OSError, UserError) as error:
            lines = [f"({error})"]
        yield from (f"  {line}" for line in lines[-_TAIL:])
