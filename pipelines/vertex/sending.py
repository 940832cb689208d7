"""Sends a run, and where somebody waits for it goes on with training that Vertex AI has given up."""

import sys
import time
from typing import Any

from google.cloud import aiplatform
from google.cloud import aiplatform_v1 as v1

from components.train.backends.vertex.job_client import log_in_again
from pipelines.vertex import client, watch
from pipelines.vertex.bucket import unfinished_step
from pipelines.vertex.costs import Prices
from pipelines.vertex.submission import Submission
from trainer.base.errors import UserError

_LIVE = ("QUEUED", "PENDING", "RUNNING", "CANCELLING", "PAUSED")


def connect(project: str, location: str) -> None:
    """Has Google's clients ask in that project and region, with the credentials of this machine."""
    with client.told():
        aiplatform.init(project=project, location=location)
        log_in_again()


def is_live(job: v1.PipelineJob) -> bool:
    """Whether a run has not ended."""
    return watch.state_of(job) in _LIVE


def run(submission: Submission, *, wait: bool, longest_s: float, price: Prices | None, say: watch.Say) -> int:
    """Sends the run; where it waits, training that was given up goes on in another run. Returns the exit code."""
    before = client.runs(run=submission.run)
    if live := [job.name.rpartition("/")[2] for job in before if is_live(job)]:
        raise UserError(f"{live[0]} is still going on; wait for it, or --cancel {submission.run}")
    attempts: list[dict[str, Any]] = []
    submission.save(attempts=attempts)
    reached, began = -1, time.monotonic()
    for number in range(len(before), len(before) + 1 + submission.cluster.scheduling.max_restarts):
        left_s = longest_s - (time.monotonic() - began)
        job_id = f"{submission.run}-{number + 1}" if number else submission.run
        name = client.send(submission.within(left_s), job_id)
        print(f"submitted {job_id}: {client.link(name)}", flush=True)
        if not wait:
            return 0
        job = watch.follow(name, submission.values["job_dir"], say)
        state = watch.state_of(job)
        if state == "SUCCEEDED":
            return 0
        if state == "CANCELLED":
            print(f"{job_id}: cancelled", file=sys.stderr)
            return 1
        _explain(job, submission)
        last, reached = reached, unfinished_step(submission.values["job_dir"])
        left_s = longest_s - (time.monotonic() - began)
        if reached <= last or left_s < 1 or _was_cancelled(submission.run):
            break
        say(f"training came to step {reached}; submitted again, it goes on from there")
    return 1


def _explain(job: v1.PipelineJob, submission: Submission) -> None:
    """Which step has failed, with what."""
    for step, why, _ in watch.failed_steps(job):
        print(f"{step} failed: {why}", file=sys.stderr)
    if job.error.message:
        print(job.error.message, file=sys.stderr)


def _was_cancelled(run: str) -> bool:
    """Whether somebody has cancelled the run's training itself, which fails the run: that is meant as its end."""
    jobs = client.custom_jobs(run)
    return bool(jobs) and jobs[-1].state.name == "JOB_STATE_CANCELLED"
