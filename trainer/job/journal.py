"""Journal and status file of one replica: what it has done, and what it is doing.

`journal-<role>-<index>-<attempt>.jsonl` in the job directory has one JSON object per line, always
with `event`, `step` (integer) and `time` (seconds since 1970). The status file, which
TRAINER_STATUS names, is rewritten for the launcher: `time, phase, step, examples_per_s`.

An object store cannot append: with every flush it would get the whole file again, the caller would
wait for it, and Cloud Storage takes about one write of an object per second (its documentation,
"Quotas & limits"). So for a job directory in a store, the journal and TensorBoard's events are
written to a directory of this machine, and a thread copies what has changed.
"""

import contextlib
import json
import os
import pathlib
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from etils import epath

from common import documents
from common.errors import UserError
from common.flags import at_least, variable
from common.storage.files import write_bytes, write_text
from common.storage.storage import is_remote

STATUS = "TRAINER_STATUS"
ATTEMPT = "TRAINER_ATTEMPT"
_BEAT_S, _SENT_EVERY_S = 2.0, 60.0
_TRY_S = 20.0  # Longest time for one copy, as a replica that must stop has little time.
_NAME = re.compile(r"journal-(.+)-(\d+)-(\d+)\.jsonl")


def _files(job_dir: epath.PathLike) -> list[tuple[str, epath.Path]]:
    """Returns all journals with the names of their replicas.

    They are sorted by role, number and attempt, so that the chief comes first.

    Raises:
      FileNotFoundError: If there is no such job directory.
    """
    # This is no glob, as the directory's path may contain special characters of patterns.
    files = [(_NAME.fullmatch(file.name), file) for file in epath.Path(job_dir).iterdir()]
    parts = sorted((match[1], int(match[2]), int(match[3]), file) for match, file in files if match)
    return [(f"{role}-{index}", file) for role, index, _, file in parts]


def events(job_dir: epath.PathLike, name: str) -> Iterator[dict[str, Any]]:
    """Yields the lines of a replica's journals of all attempts, newest first.

    Lines that are no events are skipped.

    Raises:
      FileNotFoundError: If there is no such job directory.
    """
    for file in reversed([file for replica, file in _files(job_dir) if replica == name]):
        for line in reversed(file.read_bytes().splitlines()):
            with contextlib.suppress(ValueError):  # A killed replica leaves an incomplete line.
                if isinstance(event := documents.parse_json(line), dict) and "event" in event:
                    yield event


def replicas(job_dir: epath.PathLike) -> list[str]:
    """Returns the names of the replicas that have journals, sorted by role and number.

    Raises:
      FileNotFoundError: If there is no such job directory.
    """
    return list(dict.fromkeys(name for name, _ in _files(job_dir)))


def last(job_dir: str, name: str, event: str) -> dict[str, Any]:
    """Returns the newest line of a replica's journals with that event; empty if there is none.

    Raises:
      FileNotFoundError: If there is no such job directory.
    """
    return next((line for line in events(job_dir, name) if line["event"] == event), {})


class Journal:
    """Writes the events of one replica and attempt, and its status file if there is to be one."""

    def __init__(self, job_dir: str, name: str, *, beats: bool = False) -> None:
        """Begins the file `journal-<name>-<attempt>.jsonl`.

        The attempt is that in TRAINER_ATTEMPT, or the next one without such a file. If the job
        directory is in a store, a thread starts that calls `send` once a minute.

        Args:
          job_dir: Directory of the job.
          name: Name of the replica, such as `worker-1`.
          beats: Rewrites the status file every two seconds by a thread. It is for a replica whose
            main thread waits for others in C++, for as long as they take; the file then only shows
            that the process runs.

        Raises:
          UserError: If the environment variable TRAINER_ATTEMPT is no number.
          OSError: If the file cannot be created.
        """
        self.name, self._job_dir, self._directory = name, job_dir, job_dir
        self._sent: dict[pathlib.Path, int] = {}
        self._sending = threading.Lock()
        if is_remote(job_dir):
            self._directory = tempfile.mkdtemp(prefix="job-")
            _repeat(_SENT_EVERY_S, self.send)
        attempt = variable(ATTEMPT, at_least(0))
        while (path := epath.Path(job_dir) / f"journal-{name}-{attempt}.jsonl").exists():
            attempt += 1  # The job runs again without a launcher that counts attempts.
        own = pathlib.Path(self.path(path.name))
        self._file = own.open("x", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()  # The thread that saves checkpoints writes events too.
        self._status, self._shown_at = os.environ.get(STATUS), time.monotonic()
        self._state: dict[str, Any] = {"examples_per_s": None}
        if beats:
            _repeat(_BEAT_S, self.alive)

    def path(self, *names: str) -> str:
        """Returns the path at which to write a file, or directory of files, that grows.

        It is in the job directory, or in the local directory that is copied to a store. The
        directory around it is created.

        Args:
          *names: Parts of the path relative to the job directory.
        """
        path = os.path.join(self._directory, *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def send(self) -> None:
        """Copies files that have grown to a job directory in a store; nothing for a local one.

        A failure is printed; the next call tries again.
        """
        if self._directory == self._job_dir:
            return
        root = pathlib.Path(self._directory)
        with self._sending:
            try:
                for path in filter(pathlib.Path.is_file, root.rglob("*")):
                    content = path.read_bytes()
                    if len(content) > self._sent.get(path, 0):
                        write_bytes(
                            os.path.join(self._job_dir, path.relative_to(root)),
                            content,
                            timeout_s=_TRY_S,
                        )
                        self._sent[path] = len(content)
            except (OSError, UserError) as error:
                print(
                    f"{self._job_dir}: journal and events could not be copied there for now: "
                    f"{error}"
                )

    def event(self, event: str, step: int, **fields: Any) -> None:
        """Appends a line to the journal.

        Args:
          event: Kind of event.
          step: Global step.
          **fields: Further values of the line, which JSON can hold.

        Raises:
          OSError: If the file cannot be written.
        """
        line = {"event": event, "step": int(step), "time": round(time.time(), 3), **fields}
        with self._lock:
            self._file.write(json.dumps(line) + "\n")

    def status(self, phase: str, step: int, **fields: Any) -> None:
        """Rewrites the status file, if the environment variable TRAINER_STATUS names one.

        Args:
          phase: Description of what the replica is doing.
          step: Global step.
          **fields: Further values, such as `examples_per_s`; they stay until they are given again.

        Raises:
          OSError: If the file cannot be written.
        """
        self._state = {**self._state, "phase": phase, "step": int(step), **fields}
        self._show()

    def alive(self) -> None:
        """Rewrites the status file, if there is one, with the last status, at most every 2 seconds.

        It is to be called often in anything that takes long.

        Raises:
          OSError: If the file cannot be written.
        """
        if self.silence_s >= _BEAT_S:
            self._show()

    @property
    def silence_s(self) -> float:
        """Seconds since the last call that showed the status; calls count without a file too."""
        return time.monotonic() - self._shown_at

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        if self._status:
            write_text(self._status, json.dumps({"time": time.time(), **self._state}))


def _repeat(every_s: float, call: Callable[[], None]) -> None:
    """Starts a daemon thread that calls `call` every `every_s` seconds; an `OSError` is ignored."""

    def run() -> None:
        while True:
            time.sleep(every_s)
            with contextlib.suppress(OSError):  # For example a full disk, which may have room soon.
                call()

    threading.Thread(target=run, name="journal", daemon=True).start()
