"""Sends a run, and where somebody waits for it goes on with training that was given up, as `attempts` decides."""

import contextlib
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from google.cloud import aiplatform
from google.cloud import aiplatform_v1 as v1

from common.errors import UserError
from common.google_cloud import credentials
from common.storage.files import delete_files, stat_file
from components.train.backends.job_store import JobStore
from components.train.backends.vertex_client import ENDED, CloudLogs, Jobs, ending, replica_name
from components.train.supervision.restart_policy import Again, Attempt, Bounds, Ending, next_attempt
from pipelines.vertex import client, watch
from pipelines.vertex.bucket import RECORD
from pipelines.vertex.submission import Submission

_TAIL = 10
_END_POLLS = 7  # A cancelled job has half a minute to save.


def connect(project: str, location: str) -> None:
    """Has Google's clients ask in that project and region, with the credentials of this machine."""
    aiplatform.init(project=project, location=location, credentials=credentials())


def recorded(submission: Submission) -> tuple[JobStore, bool]:
    """Returns the record of a run's attempts, and whether the run has ended well; refuses one that goes on.

    What became of an attempt that nobody waited for is added; it is written with the next one.
    """
    store = JobStore(submission.values["job_dir"])
    runs = _ended_runs(submission)
    store.load()
    if store.lines and "ending" not in store.lines[-1]:
        of_line = (run for run in runs if _id(run) == store.lines[-1]["display_name"])
        _complete(store, _trained(store, submission), next(of_line, None))
    return store, any(watch.state_of(run) == "SUCCEEDED" for run in runs)


def run(submission: Submission, bounds: Bounds, store: JobStore, *, wait: bool) -> int:
    """Sends the run; where it waits, training that was given up goes on in another. Returns 0 if the last has ended well.

    What is refused leaves the bucket as it was.
    """
    names = {_id(run) for run in _ended_runs(submission)} | {line["display_name"] for line in store.lines}
    record = f"{submission.directory}/{RECORD}"
    is_new = not store.lines and not stat_file(record)
    if is_new:
        submission.save()
    earlier = store.attempts
    attempts: list[Attempt] = []
    while isinstance(order := next_attempt(attempts, bounds, earlier), Again):
        numbered = (f"{submission.run}-{number}" for number in itertools.count(2))
        job_id = next(name for name in itertools.chain([submission.run], numbered) if name not in names)
        names.add(job_id)
        line = store.begin(job_id, submission.cluster.choices[order.choice], order)
        try:
            name = client.send(submission.attempt(order), job_id)
        except UserError:  # Where there was no answer it may have begun, and what is kept of it is needed.
            with contextlib.suppress(UserError, ConnectionError):
                store.undo()
                if is_new:
                    delete_files([record])
            raise
        if not is_new:
            submission.save()  # With what this command changes of it.
        is_new = False
        machines = ", ".join(f"{role}: {what}" for role, what in line["machines"].items())
        print(f"submitted {job_id}: {client.link(name)}", flush=True)
        if order.choice or attempts:
            watch.say(f"{machines}, from step {max(0, line['step_before']):,}")
        if not wait:
            return 0
        job = watch.follow(name, store.job_dir)
        trained = _trained(store, submission)
        failures = list(_failures(job, trained, submission))
        attempt = _complete(store, trained, job)
        store.write()
        if watch.state_of(job) == "SUCCEEDED":
            return 0
        if watch.state_of(job) == "CANCELLED":
            print(f"{job_id}: cancelled", file=sys.stderr)
            return 1
        print(*filter(None, [job.error.message, *failures]), sep="\n", file=sys.stderr)
        if not attempt or attempt.ending is Ending.SUCCEEDED:
            return 1  # it was another step that failed
        attempts.append(attempt)
        watch.say(f"training: {attempt.ending}, at step {max(0, attempt.step_after):,}")
    print(f"training is given up: {order.why}", file=sys.stderr)
    return 1


def _id(run: v1.PipelineJob) -> str:
    return run.name.rpartition("/")[2]


def _ended_runs(submission: Submission) -> list[v1.PipelineJob]:
    """Returns the pipeline jobs of a run; refuses one that goes on."""
    runs = client.runs(run=submission.run)
    if live := [_id(job) for job in runs if watch.is_live(job)]:
        raise UserError(f"{live[0]} is still going on; wait for it, or --cancel {submission.run}")
    return runs


def _trained(store: JobStore, submission: Submission) -> list[v1.CustomJob]:
    """Returns the jobs of the last attempt, once they have ended; refuses one that goes on without its pipeline job."""
    known = {name for line in store.lines for name in line.get("jobs", ())}
    trained: list[v1.CustomJob] = []
    for polls in range(_END_POLLS):
        if polls:
            time.sleep(watch.POLL_S)
        trained = [job for job in client.custom_jobs(submission.run) if job.name not in known]
        if all(job.end_time for job in trained):
            return trained
    if live := [job.name.rpartition("/")[2] for job in trained if job.state.name not in ENDED]:
        where = f"--project {submission.job['project']} --region {submission.job['location']}"
        raise UserError(
            f"training job {live[0]} of {submission.run} is still going on; wait for it, or: "
            f"gcloud ai custom-jobs cancel {live[0]} {where}"
        )
    return trained


def _complete(store: JobStore, trained: Sequence[v1.CustomJob], run: v1.PipelineJob | None) -> Attempt | None:
    """Completes the last line; takes it out, and returns None, if there was no training."""
    failed = dict(watch.failed_steps(run)).get("train") if run else None
    if trained:
        # Whoever cancels training ends its step; cancelled after that, it was by the exit handler: the launcher was lost.
        is_left = failed and failed.end_time and trained[-1].end_time and trained[-1].end_time > failed.end_time
        is_lost = bool(is_left) and trained[-1].state.name == "JOB_STATE_CANCELLED"
        return store.complete(trained, is_lost=is_lost and watch.state_of(run) == "FAILED")
    if failed:  # Its job was refused, or not made.
        error = " ".join(failed.error.message.split())
        how = ending(failed)
        if how is not Ending.FAILED:
            return store.refuse(error, how)
    store.lines.pop()
    return None


def _failures(job: v1.PipelineJob, trained: Sequence[v1.CustomJob], submission: Submission) -> Iterator[str]:
    """Each step that has failed and why: of the training which replica, and its last lines."""
    for step, task in watch.failed_steps(job):
        why, number = task.error.message, task.executor_detail.container_detail.main_job.rpartition("/")[2]
        blamed, roles = "", tuple[str, ...]()
        if step == "train" and trained:
            why, number = trained[-1].error.message or why, trained[-1].name.rpartition("/")[2]
            roles = tuple(submission.cluster.pools)
            blamed = replica_name(why, roles)
        head = f"{step}{f' ({blamed})' if blamed else ''} failed: {' '.join(why.split())}"
        yield "\n  ".join([head, *_last_lines(submission, number, roles, blamed)])


def _last_lines(submission: Submission, number: str, roles: tuple[str, ...], blamed: str) -> list[str]:
    """What a job's replica, or all, have written last, where Cloud Logging tells it."""
    place = submission.job["project"], submission.job["location"]
    if not number:
        return []
    try:
        lines: list[Any] = list(CloudLogs(place[0], number, roles).new(Jobs(*place).session()))
    except (OSError, UserError) as error:
        return [f"(Cloud Logging: {error})"]
    return [text for replica, text in lines if replica == blamed or not blamed][-_TAIL:]
