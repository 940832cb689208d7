"""Sends a run, and where somebody waits for it goes on with training that was given up, as `attempts` decides."""

import sys
from collections.abc import Iterator
from typing import Any

from google.cloud import aiplatform
from google.cloud import aiplatform_v1 as v1

from components.bucket import credentials
from components.files.listing import deleted, listed
from components.train.backends.vertex.attempts import Again, Attempt, Bounds, Ending, decide, lacks_capacity
from components.train.backends.vertex.cloud_logs import CloudLogs, replica_name
from components.train.backends.vertex.job_client import Jobs
from components.train.backends.vertex.job_store import JobStore, begun, completed, refused
from pipelines.vertex import client, watch
from pipelines.vertex.submission import Submission
from trainer.base.errors import UserError

_TAIL = 10


def connect(project: str, location: str) -> None:
    """Has Google's clients ask in that project and region, with the credentials of this machine."""
    aiplatform.init(project=project, location=location, credentials=credentials())


def run(submission: Submission, bounds: Bounds, *, wait: bool) -> int:
    """Sends the run; where it waits, training that was given up goes on in another. Returns 0 if the last has ended well."""
    before = client.runs(run=submission.run)
    if live := [job.name.rpartition("/")[2] for job in before if watch.is_live(job)]:
        raise UserError(f"{live[0]} is still going on; wait for it, or --cancel {submission.run}")
    submission.save()
    store = JobStore(submission.values["job_dir"])
    record, made = store.attempts(), list[Attempt]()
    while isinstance(order := decide(made, bounds), Again):
        number = len(before) + len(made)
        job_id = f"{submission.run}-{number + 1}" if number else submission.run
        record.append(line := begun(job_id, submission.cluster.choices[order.choice], order, store.step()))
        store.write(record)
        known = {job.name for job in client.custom_jobs(submission.run)}
        try:
            name = client.send(submission.attempt(order), job_id)
        except UserError:  # where there was no answer it may have begun, and what is kept of it is needed
            if number:
                store.write(record[:-1])
            else:
                deleted(file.path for file in listed(submission.directory))
            raise
        machines = ", ".join(f"{role}: {what}" for role, what in line["machines"].items())
        print(f"submitted {job_id}: {client.link(name)}", flush=True)
        if order.choice or made:
            watch.say(f"{machines}, from step {max(0, line['step_before']):,}")
        if not wait:
            return 0
        job = watch.follow(name, store.job_dir)
        trained = [each for each in client.custom_jobs(submission.run) if each.name not in known]
        failures = dict(_failures(job, trained, submission))
        attempt = None
        if trained:
            attempt = completed(line, trained[-1], store.step())
        elif lacks_capacity(failures.get("train", "")):  # its job was refused
            line["error"] = failures["train"]
            attempt = refused(line)
        if attempt:
            made.append(attempt)
        else:  # it did not come to that
            record.pop()
        store.write(record)
        if watch.state_of(job) == "SUCCEEDED":
            return 0
        if watch.state_of(job) == "CANCELLED":
            print(f"{job_id}: cancelled", file=sys.stderr)
            return 1
        print(*filter(None, [job.error.message, *failures.values()]), sep="\n", file=sys.stderr)
        if not attempt or attempt.ending is Ending.SUCCEEDED:
            return 1  # it was another step that failed
        watch.say(f"training: {attempt.ending}, at step {max(0, attempt.step_after):,}")
    print(f"training is given up: {order.why}", file=sys.stderr)
    return 1


def _failures(job: v1.PipelineJob, trained: list[v1.CustomJob], submission: Submission) -> Iterator[tuple[str, str]]:
    """Each step that has failed and why: of the training which replica, and its last lines."""
    for step, why, number in watch.failed_steps(job):
        blamed, roles = "", tuple[str, ...]()
        if step == "train" and trained:
            why, number = trained[-1].error.message or why, trained[-1].name.rpartition("/")[2]
            roles = tuple(submission.cluster.pools)
            blamed = replica_name(why, roles)
        head = f"{step}{f' ({blamed})' if blamed else ''} failed: {' '.join(why.split())}"
        yield step, "\n  ".join([head, *_last_lines(submission, number, roles, blamed)])


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
