"""A job directory in a bucket, as the machine that submits the job sees it.

store = JobStore("gs://bucket/job")
store.step()       # of the newest checkpoint
store.done()       # what DONE.json says
"""

import json
import re
from typing import Any

from components.bucket import opened
from trainer.base.errors import UserError

RECORD = "attempts.json"  # each job that was submitted for the directory, and how it ended


class Taken(UserError):
    """Somebody else submits jobs for the same directory."""


class JobStore:
    """Reads a job's checkpoints and results, and keeps the record of its attempts."""

    def __init__(self, job_dir: str) -> None:
        """Asks nothing yet."""
        self.job_dir, self._version = job_dir, 0

    def step(self) -> int:
        """Step of the newest checkpoint; -1 if there is none."""
        with opened(f"{self.job_dir}/checkpoints/") as (bucket, folder):
            names = [blob.name.removeprefix(folder) for blob in bucket.list_blobs(prefix=folder)]
        found = filter(None, map(re.compile(r"ckpt-(\d+)\.index").fullmatch, names))
        return max((int(match[1]) for match in found), default=-1)

    def done(self) -> dict[str, Any]:
        """What `DONE.json` says; nothing if the training is not done."""
        return self._read("DONE.json")[0] or {}

    def attempts(self) -> list[dict[str, Any]]:
        """The record, oldest first; what `write` then writes is its next version."""
        found, self._version = self._read(RECORD)
        return found or []

    def write(self, attempts: list[dict[str, Any]]) -> None:
        """Replaces the record.

        Raises:
          Taken: If somebody else has done so meanwhile.
        """
        from google.api_core.exceptions import PreconditionFailed

        with opened(f"{self.job_dir}/{RECORD}") as (bucket, name):
            blob = bucket.blob(name)
            try:
                text = json.dumps(attempts, indent=1) + "\n"
                blob.upload_from_string(text, "application/json", if_generation_match=self._version)
            except PreconditionFailed:
                raise Taken(f"{self.job_dir}: another command submits jobs for it; end that, or wait") from None
            self._version = blob.generation

    def _read(self, file: str) -> tuple[Any, int]:
        """The content of a file and its generation; None and 0 if there is none."""
        with opened(f"{self.job_dir}/{file}") as (bucket, name):
            if not (found := bucket.get_blob(name)):
                return None, 0
            return json.loads(bucket.blob(name, generation=found.generation).download_as_bytes()), found.generation
