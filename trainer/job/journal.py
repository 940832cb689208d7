"""What one replica did and is doing: the journal keeps it, the status file shows it.

`journal-<role>-<index>-<attempt>.jsonl` in the job directory has one JSON object a line, always
with `event`, `step` (integer) and `time` (seconds since the epoch). The status file named by
TRAINER_STATUS is rewritten in place for the launcher: `time, phase, step, examples_per_s`.

An object store cannot append. Each time such a file is flushed it is sent again whole, whoever
flushes waits for the store, and Cloud Storage takes about one write a second to an object (its
documentation, "Quotas & limits"). So for a job directory in a store, the journal and TensorBoard's
events are written to a directory of this machine, and a thread copies what has changed.
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
_TRY_S = 20.0  # that one copy may take: a replica that is to stop has little time
_NAME = re.compile(r"journal-(.+)-(\d+)-(\d+)\.jsonl")


def _files(job_dir: epath.PathLike) -> list[tuple[str, epath.Path]]:
    """Returns all journals with their replicas' names: the chief's first, and of a replica the oldest."""
    # Not by a pattern, which other names in the job directory's path could be too.
    files = [(_NAME.fullmatch(file.name), file) for file in epath.Path(job_dir).iterdir()]
    parts = sorted((match[1], int(match[2]), int(match[3]), file) for match, file in files if match)
    return [(f"{role}-{index}", file) for role, index, _, file in parts]


def events(job_dir: epath.PathLike, name: str) -> Iterator[dict[str, Any]]:
    """Yields the lines of a replica's journals of all attempts, the newest first."""
    for file in reversed([file for replica, file in _files(job_dir) if replica == name]):
        for line in reversed(file.read_bytes().splitlines()):
            with contextlib.suppress(ValueError):  # half a line, of a replica that was killed
                if isinstance(event := documents.parse_json(line), dict) and "event" in event:
                    yield event


def replicas(job_dir: epath.PathLike) -> list[str]:
    """Returns the names of the replicas with journals: the chief, and the others by role and number."""
    return list(dict.fromkeys(name for name, _ in _files(job_dir)))


def last(job_dir: str, name: str, event: str) -> dict[str, Any]:
    """Returns the newest line with that event; empty without one."""
    return next((line for line in events(job_dir, name) if line["event"] == event), {})


class Journal:
    """Appends events of one replica and attempt, and shows what it is doing in its status file, if it is to have one."""

    def __init__(self, job_dir: str, name: str, *, beats: bool = False) -> None:
        """Begins the journal.

        With `beats` it shows its status every two seconds of itself: for a replica whose main
        thread waits for others in C++, for as long as they take. That its process runs is all that
        this says.
        """
        self.name, self._job_dir, self._directory = name, job_dir, job_dir
        self._sent: dict[pathlib.Path, int] = {}
        self._sending = threading.Lock()
        if is_remote(job_dir):
            self._directory = tempfile.mkdtemp(prefix="job-")
            _repeat(_SENT_EVERY_S, self.send)
        attempt = variable(ATTEMPT, at_least(0))
        while (path := epath.Path(job_dir) / f"journal-{name}-{attempt}.jsonl").exists():
            attempt += 1  # a job run again without a launcher that counts
        own = pathlib.Path(self.path(path.name))
        self._file = own.open("x", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()  # Checkpoints are noted by a thread of their own.
        self._status, self._shown_at = os.environ.get(STATUS), time.monotonic()
        self._state: dict[str, Any] = {"examples_per_s": None}
        if beats:
            _repeat(_BEAT_S, self.alive)

    def path(self, *names: str) -> str:
        """Returns where to write a file of the job directory that grows, or a directory of such files."""
        path = os.path.join(self._directory, *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def send(self) -> None:
        """Copies what has grown to a job directory in a store; a line says what failed, which is tried again next time."""
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
        """Appends one line."""
        line = {"event": event, "step": int(step), "time": round(time.time(), 3), **fields}
        with self._lock:
            self._file.write(json.dumps(line) + "\n")

    def status(self, phase: str, step: int, **fields: Any) -> None:
        """Rewrites the status file; `fields`, `examples_per_s` among them, stay until they are given again."""
        self._state = {**self._state, "phase": phase, "step": int(step), **fields}
        self._show()

    def alive(self) -> None:
        """Shows the last status again, now and then: for whatever takes long, to be called often."""
        if self.silence_s >= _BEAT_S:
            self._show()

    @property
    def silence_s(self) -> float:
        """Seconds since the last status, or sign of life."""
        return time.monotonic() - self._shown_at

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        if self._status:
            write_text(self._status, json.dumps({"time": time.time(), **self._state}))


def _repeat(every_s: float, call: Callable[[], None]) -> None:
    """Has a thread make a call again and again."""

    def run() -> None:
        while True:
            time.sleep(every_s)
            with contextlib.suppress(OSError):  # a full disk, for now
                call()

    threading.Thread(target=run, name="journal", daemon=True).start()
