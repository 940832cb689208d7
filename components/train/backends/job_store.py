"""A job directory in a bucket, as the machine that submits the job sees it, and the record of its attempts there.

store = JobStore("gs://bucket/job")
store.load()
store.begin("training-1", cluster.choices[0], Again(choice=0, timeout_s=3600))   # a line is one of JSON
attempt = store.complete([custom_job])                                          # when the job has ended
store.write()
"""

import datetime
import json
import re
from collections.abc import Sequence
from typing import Any

import pydantic

from common import documents
from common.errors import reading
from common.google_cloud import Refused
from common.storage.files import list_folder, write_bytes
from common.storage.storage import storage_of
from components.train.backends.vertex_client import ending, exit_code
from components.train.cluster.cluster_file import Cluster
from components.train.supervision.restart_policy import Again, Attempt, Ending

RECORD = "attempts.json"  # each job that was submitted for the directory, and how it ended
_MEND = "put the right one back, or delete it, which forgets what the job has used of its limits"
_Lines = pydantic.TypeAdapter(list[dict[str, Any]])
_Attempts = pydantic.TypeAdapter(list[Attempt])
_RUNNING = {"ending": Ending.FAILED, "step_after": -1, "seconds": 0}  # stands for what is not known yet


class JobStore:
    """Reads a job's checkpoints, and keeps the record of its attempts.

    Attributes:
      lines: The record, oldest first; a line without an `ending` is of an attempt that has not ended, as far as is known.
    """

    def __init__(self, job_dir: str) -> None:
        self.job_dir = job_dir
        self.lines: list[dict[str, Any]] = []
        self._path, self._version = f"{job_dir}/{RECORD}", ""

    @property
    def attempts(self) -> list[Attempt]:
        """Attempts that have ended, oldest first."""
        return _Attempts.validate_python([line for line in self.lines if "ending" in line])

    def step(self) -> int:
        """Returns the step of the newest checkpoint; -1 if there is none."""
        names = "\n".join(file.path for file in list_folder(f"{self.job_dir}/checkpoints")[1])
        return max(map(int, re.findall(r"/ckpt-(\d+)\.index$", names, re.MULTILINE)), default=-1)

    def load(self) -> None:
        """Reads the record; what `write` then writes is its next version."""
        content, self._version = storage_of(self._path).read(self._path, documents.MOST_BYTES) or (b"[]", "")
        with reading(self._path, _MEND):
            lines = _Lines.validate_python(documents.parse_json(content))
            _Attempts.validate_python([{**_RUNNING, **line} for line in lines if line["display_name"]])
            self.lines = lines

    def begin(self, display_name: str, machines: Cluster, order: Again) -> dict[str, Any]:
        """Adds the line of a job that is about to be submitted, and writes the record; of two commands one goes on."""
        line = {
            "display_name": display_name,
            "submitted": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "choice": order.choice,
            "machines": {role: f"{pool.replicas} x {pool.shape}" for role, pool in machines.pools.items()},
            "replicas": machines.replicas,
            "timeout_s": order.timeout_s,
            "step_before": self.step(),
        }
        self._write([*self.lines, line])
        return line

    def complete(self, jobs: Sequence[Any], *, is_lost: bool = False) -> Attempt:
        """Adds to the last line how its attempt has ended.

        Args:
          jobs: Its jobs (`CustomJob` messages), in their order; more than one if what had launched them was lost.
          is_lost: Whether the last job was cancelled because what had launched it was lost.
        """
        ran = [(job.end_time - job.start_time).total_seconds() for job in jobs if job.start_time and job.end_time]
        error = " ".join(jobs[-1].error.message.split())
        how = Ending.LOST if is_lost else ending(jobs[-1])
        names = [job.name for job in jobs]
        return self._end(error, how, sum(ran), self.step(), jobs=names, exit_code=exit_code(error))

    def refuse(self, error: str, how: Ending = Ending.STOCKOUT) -> Attempt:
        """Completes the last line, of an attempt for which no job was made."""
        return self._end(error, how, 0.0, self.lines[-1]["step_before"])

    def undo(self) -> None:
        """Takes the last line out, of a job that was refused."""
        self._write(self.lines[:-1])

    def write(self) -> None:
        """Replaces the record, unless somebody else has done so meanwhile."""
        self._write(self.lines)

    def _end(self, error: str, how: Ending, seconds: float, step: int, **more: Any) -> Attempt:
        line = self.lines[-1]
        line |= {"error": error, "ending": how, "seconds": seconds, "step_after": step, **more}
        line["machine_hours"] = self.attempts[-1].machine_hours
        return self.attempts[-1]

    def _write(self, lines: list[dict[str, Any]]) -> None:
        if lines:
            content = json.dumps(lines, indent=1).encode() + b"\n"
            try:
                self._version = write_bytes(self._path, content, if_version=self._version).version
            except FileExistsError:
                raise Refused(f"{self.job_dir}: another command submits jobs for it; end that, or wait") from None
        else:
            storage_of(self._path).delete(self._path, if_version=self._version)
            self._version = ""
        self.lines = lines
