"""A job directory in a bucket, as the machine that submits the job sees it, and the record of its attempts there.

store = JobStore("gs://bucket/job")
line = begun("training-1", cluster.choices[0], Again(choice=0, timeout_s=3600), step=store.step())
store.write([*store.attempts(), line])                   # a line is one of JSON
attempt = completed(line, custom_job, step=store.step())     # when the job has ended
"""

import dataclasses
import datetime
import json
import re
from typing import Any

from components.files.store import asked
from components.train.backends.vertex.attempts import Again, Attempt, Ending, ending, exit_code
from components.train.cluster.cluster_file import Cluster
from trainer.base import bounded_json
from trainer.base.errors import UserError, reading

RECORD = "attempts.json"  # each job that was submitted for the directory, and how it ended


class Taken(UserError):
    """Somebody else submits jobs for the same directory."""


class JobStore:
    """Reads a job's checkpoints and results, and keeps the record of its attempts."""

    def __init__(self, job_dir: str) -> None:
        self.job_dir, self._version = job_dir, 0

    def step(self) -> int:
        """Step of the newest checkpoint; -1 if there is none."""
        with asked(f"{self.job_dir}/checkpoints/") as (bucket, folder):
            names = [blob.name.removeprefix(folder) for blob in bucket.list_blobs(prefix=folder)]
        found = filter(None, map(re.compile(r"ckpt-(\d+)\.index").fullmatch, names))
        return max((int(match[1]) for match in found), default=-1)

    def attempts(self) -> list[dict[str, Any]]:
        """The record, oldest first; what `write` then writes is its next version."""
        with asked(f"{self.job_dir}/{RECORD}") as (bucket, name):
            if not (blob := bucket.get_blob(name)):
                return []
            self._version = blob.generation
            is_small = blob.size <= bounded_json.MOST_BYTES
            content = bucket.blob(name, generation=blob.generation).download_as_bytes() if is_small else b""
        with reading(f"{self.job_dir}/{RECORD}"):
            lines = bounded_json.parse(content)
            if not isinstance(lines, list) or not all(isinstance(line["display_name"], str) for line in lines):
                raise ValueError("it is no list of jobs")
            return lines

    def write(self, attempts: list[dict[str, Any]]) -> None:
        """Replaces the record; it is `Taken` if somebody else has done so meanwhile."""
        from google.api_core.exceptions import PreconditionFailed

        with asked(f"{self.job_dir}/{RECORD}") as (bucket, name):
            blob = bucket.blob(name)
            try:
                text = json.dumps(attempts, indent=1) + "\n"
                blob.upload_from_string(text, "application/json", if_generation_match=self._version)
            except PreconditionFailed:
                raise Taken(f"{self.job_dir}: another command submits jobs for it; end that, or wait") from None
            self._version = blob.generation


def begun(display_name: str, machines: Cluster, order: Again, step: int) -> dict[str, Any]:
    """Of a job that is about to be submitted, with the newest checkpoint's step (-1: none)."""
    return {
        "display_name": display_name,
        "submitted": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "choice": order.choice,
        "machines": {role: f"{pool.replicas} x {pool.shape}" for role, pool in machines.pools.items()},
        "replicas": machines.replicas,
        "timeout_s": order.timeout_s,
        "step_before": step,
    }


def completed(line: dict[str, Any], job: Any, step: int) -> Attempt:
    """Adds to its line how a job (a `CustomJob` message) has ended, with the step of the newest checkpoint by then."""
    ran = (job.end_time - job.start_time).total_seconds() if job.start_time and job.end_time else 0.0
    error = " ".join(job.error.message.split())
    line |= {"ending": ending(job.state.name, job.error.code, error), "error": error, "seconds": ran}
    line |= {"exit_code": exit_code(error), "step_after": step}
    return _attempt(line)


def refused(line: dict[str, Any]) -> Attempt:
    """Completes the line of a job that Vertex AI did not make for lack of quota; it has the `error` already."""
    line |= {"ending": Ending.STOCKOUT, "seconds": 0.0, "exit_code": 1, "step_after": line["step_before"]}
    return _attempt(line)


def _attempt(line: dict[str, Any]) -> Attempt:
    made = Attempt(**{field.name: line[field.name] for field in dataclasses.fields(Attempt)})
    line["machine_hours"] = made.machine_hours
    return made
