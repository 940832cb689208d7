"""What one replica did and is doing: the journal keeps it, the status file shows it.

`journal-<role>-<index>-<attempt>.jsonl` in the job directory has one JSON object a line, always with `event`, `step`
(integer) and `time` (seconds since the epoch). The status file named by TRAINER_STATUS is rewritten in place for the
launcher: `time, phase, step, examples_per_s, cpu, memory`.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import tempfile
import threading
import time
from typing import Any

import psutil
from etils import epath

from trainer.base.files import write_text

STATUS = "TRAINER_STATUS"
ATTEMPT = "TRAINER_ATTEMPT"
_BEAT_S = 2.0


def last(job_dir: str, replica: str, event: str) -> dict[str, Any]:
    """The newest line with that event in that replica's journals of all attempts; empty if there is none."""
    files = epath.Path(job_dir).glob(f"journal-{replica}-*.jsonl")
    for file in sorted(files, key=lambda file: int(file.stem.rsplit("-", 1)[1]), reverse=True):
        for line in reversed(file.read_text().splitlines()):
            with contextlib.suppress(ValueError):  # half a line, of a replica that was killed
                if (found := json.loads(line))["event"] == event:
                    return found
    return {}


class Status:
    """The status file of this process, if it is to have one."""

    def __init__(self) -> None:
        self._path = os.environ.get(STATUS)
        self._fields: dict[str, Any] = {"examples_per_s": None}
        self._process = psutil.Process()

    def __call__(self, phase: str, step: int, **fields: Any) -> None:
        """Rewrites the file: `cpu` is the CPU seconds used so far, `memory` the resident bytes.

        `fields`, `examples_per_s` among them, stay until they are given again.
        """
        if not self._path:
            return
        self._fields.update(fields)
        cpu = self._process.cpu_times()
        state = {
            "time": time.time(),
            "phase": phase,
            "step": int(step),
            "cpu": round(cpu.user + cpu.system, 2),
            "memory": self._process.memory_info().rss,
            **self._fields,
        }
        write_text(self._path, json.dumps(state))

    def keep_telling(self, phase: str) -> None:
        """Tells it every two seconds from now on, in a thread of its own: for a main thread that stays in C++."""

        def tell() -> None:
            while True:
                with contextlib.suppress(OSError):  # a full disk, for now
                    self(phase, 0)
                time.sleep(_BEAT_S)

        threading.Thread(target=tell, name="status", daemon=True).start()


class Journal:
    """Appends events of one replica and attempt.

    Object stores cannot append; for a job directory there the lines go to a local file that `flush` uploads.

    Attributes:
      status: The status file; to call it rewrites the file.
    """

    def __init__(self, job_dir: str, replica: str) -> None:
        """Args: `replica` is its name, such as `worker-0`."""
        attempt = int(os.environ.get(ATTEMPT, 0))
        directory = epath.Path(job_dir)
        directory.mkdir(parents=True, exist_ok=True)
        while (path := directory / f"journal-{replica}-{attempt}.jsonl").exists():
            attempt += 1  # a job run again without a launcher that counts
        self._remote = None if "://" not in job_dir else path
        self._local = pathlib.Path(tempfile.mkdtemp()) / path.name if self._remote else pathlib.Path(path)
        self._file = self._local.open("x", encoding="utf-8", buffering=1)
        self.status = Status()

    def event(self, event: str, step: int, **fields: Any) -> None:
        """Appends one line."""
        line = {"event": event, "step": int(step), "time": round(time.time(), 3), **fields}
        self._file.write(json.dumps(line) + "\n")

    def flush(self) -> None:
        """Makes the lines so far visible in the job directory."""
        if self._remote:
            write_text(self._remote, self._local.read_text(encoding="utf-8"))
