"""A job directory in a bucket, as the machine that submits the job sees it, and the record of its attempts there.

store = JobStore("gs://bucket/job")
store.load()
line = begun("training-1", cluster.choices[0], Again(choice=0, timeout_s=3600), step=store.step())
store.lines.append(line)                                     # a line is one of JSON
store.write()
attempt = completed(line, [custom_job], step=store.step())   # when the job has ended
"""

import datetime
import json
import re
from collections.abc import Sequence
from typing import Any

import pydantic

from components.files.store import asked
from components.train.backends.vertex.attempts import Again, Attempt, Ending, ending, exit_code
from components.train.cluster.cluster_file import Cluster
from trainer.base import bounded_json
from trainer.base.errors import UserError, reading
from trainer.job_dir import done

RECORD = "attempts.json"  # each job that was submitted for the directory, and how it ended
_MEND = "put the right one back, or delete it, which forgets what the job has used of its limits"
_Lines = pydantic.TypeAdapter(list[dict[str, Any]])
_Attempts = pydantic.TypeAdapter(list[Attempt])
_RUNNING = {"ending": Ending.FAILED, "step_after": -1, "seconds": 0}  # stands for what is not known yet


class Taken(UserError):
    """Somebody else submits jobs for the same directory."""


class JobStore:
    """Reads a job's checkpoints and results, and keeps the record of its attempts.

    Attributes:
      lines: The record, oldest first; a line without an `ending` is of an attempt that has not ended, as far as is known.
    """

    def __init__(self, job_dir: str) -> None:
        self.job_dir = job_dir
        self.lines: list[dict[str, Any]] = []
        self._content, self._replaced, self._version = b"", b"", 0

    @property
    def attempts(self) -> list[Attempt]:
        """Attempts that have ended, oldest first."""
        return _Attempts.validate_python([line for line in self.lines if "ending" in line])

    def step(self) -> int:
        """Step of the newest checkpoint; -1 if there is none."""
        with asked(f"{self.job_dir}/checkpoints/") as (bucket, folder):
            names = [blob.name.removeprefix(folder) for blob in bucket.list_blobs(prefix=folder)]
        found = filter(None, map(re.compile(r"ckpt-(\d+)\.index").fullmatch, names))
        return max((int(match[1]) for match in found), default=-1)

    def done(self) -> done.Done | None:
        """The trainer's record of a finished job, or None."""
        content, version = self._read(done.FILE)
        with reading(f"{self.job_dir}/{done.FILE}"):
            return done.of_record(bounded_json.parse(content)) if version else None

    def load(self) -> None:
        """Reads the record; what `write` then writes is its next version."""
        self._content, self._version = self._read(RECORD)
        with reading(f"{self.job_dir}/{RECORD}", _MEND):
            lines = _Lines.validate_python(bounded_json.parse(self._content) if self._version else [])
            _Attempts.validate_python([{**_RUNNING, **line} for line in lines if line["display_name"]])
            self.lines = lines

    def write(self) -> None:
        """Replaces the record; it is `Taken` if somebody else has done so meanwhile."""
        self._replace(json.dumps(self.lines, indent=1).encode() + b"\n")

    def undo(self) -> None:
        """Puts back what the last `write` replaced, byte for byte."""
        self._replace(self._replaced)

    def _read(self, file: str) -> tuple[bytes, int]:
        """Content and generation of a file; empty and 0 if there is none."""
        with asked(f"{self.job_dir}/{file}") as (bucket, name):
            blob = bucket.get_blob(name)
            if not blob:
                return b"", 0
            # What is too large is refused as what is empty.
            is_small = blob.size <= bounded_json.MOST_BYTES
            content = bucket.blob(name, generation=blob.generation).download_as_bytes() if is_small else b""
            return content, blob.generation

    def _replace(self, content: bytes) -> None:
        from google.api_core.exceptions import PreconditionFailed

        with asked(f"{self.job_dir}/{RECORD}") as (bucket, name):
            blob = bucket.blob(name)
            try:
                if content:
                    blob.upload_from_string(content, "application/json", if_generation_match=self._version)
                else:
                    blob.delete(if_generation_match=self._version)
            except PreconditionFailed:
                raise Taken(f"{self.job_dir}: another command submits jobs for it; end that, or wait") from None
            self._version = blob.generation if content else 0
        self._replaced, self._content = self._content, content


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


def completed(line: dict[str, Any], jobs: Sequence[Any], step: int, *, is_lost: bool = False) -> Attempt:
    """Adds to its line how an attempt has ended, with the step of the newest checkpoint by then.

    Args:
      line: Of the attempt.
      jobs: Its jobs (`CustomJob` messages), in their order; more than one if what had launched them was lost.
      step: Of the newest checkpoint.
      is_lost: Whether the last job was cancelled because what had launched it was lost.
    """
    last = jobs[-1]
    ran = [(job.end_time - job.start_time).total_seconds() for job in jobs if job.start_time and job.end_time]
    error = " ".join(last.error.message.split())
    how = Ending.LOST if is_lost else ending(last.state.name, last.error.code, error)
    line |= {"jobs": [job.name for job in jobs], "error": error, "exit_code": exit_code(error)}
    return _ended(line, how, sum(ran), step)


def refused(line: dict[str, Any], how: Ending = Ending.STOCKOUT) -> Attempt:
    """Completes the line of an attempt for which no job was made, for lack of quota; it has the `error` already."""
    return _ended(line, how, 0.0, line["step_before"])


def _ended(line: dict[str, Any], how: Ending, seconds: float, step: int) -> Attempt:
    line |= {"ending": how, "seconds": seconds, "step_after": step}
    [attempt] = _Attempts.validate_python([line])
    line["machine_hours"] = attempt.machine_hours
    return attempt
