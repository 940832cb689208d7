"""`run.json`: what a run is to do; locked as long as the process that drives the run lives."""

import contextlib
import dataclasses
import datetime
import fcntl
import json
import os
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import TypeAdapter

from common import documents
from common.errors import writable
from common.storage.files import write_text

FILE = "run.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run of the pipeline on this machine."""

    id: str  # name of its directory
    runner: str  # `subprocess` or `docker`
    image: str  # of the steps' containers
    dataset: str  # as on the command line, for people to see; so is `cluster`
    cluster: str
    sources: Sequence[str] = ()  # paths of the data, which containers have to see
    arguments: Mapping[str, Any]  # of the pipeline

    @property
    def dir(self) -> pathlib.Path:
        """Directory of the run, which may have been moved since."""
        return pathlib.Path(self.arguments["run_dir"])

    @property
    def label(self) -> str:
        """Label of its containers, `KEY=VALUE`."""
        return f"tfrecord-training.run={self.id}"

    @classmethod
    def load(cls, run_dir: str | os.PathLike[str]) -> Self:
        """Reads `run.json`; a ValueError if that is missing or damaged."""
        return TypeAdapter(cls).validate_python(read_or_empty(pathlib.Path(run_dir) / FILE))

    def save(self) -> None:
        """Writes `run.json`."""
        write_text(self.dir / FILE, json.dumps(dataclasses.asdict(self), indent=1) + "\n")


def begin(runs_dir: pathlib.Path, arguments: Mapping[str, Any], **facts: Any) -> RunRecord:
    """Makes a directory for a run, which this process locks, and returns its record with the pipeline's arguments."""
    with writable(f"--runs-dir {runs_dir}"):
        run_dir = _make_run_dir(runs_dir)
        paths = {"run_dir": run_dir, "job_dir": run_dir / "job", "log_dir": run_dir / "logs"}
        arguments = {
            **arguments,
            **{name: str(path) for name, path in paths.items()},
            "run_id": run_dir.name,
        }
        record = RunRecord(id=run_dir.name, arguments=arguments, **facts)
        record.save()
    lock(run_dir)
    return record


def lock(run_dir: pathlib.Path) -> int:
    """Locks a run's record until this process ends, however it does, or the returned descriptor is closed.

    The lock also tells other containers, and other machines that share the directory, that the run
    goes on.
    """
    descriptor = os.open(run_dir / FILE, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def read_or_empty(path: pathlib.Path) -> dict[str, Any]:
    """Returns the object in a file of JSON; an empty one while the file is missing or incomplete."""
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        content = documents.parse_json(documents.read(file))
        return content if isinstance(content, dict) else {}
    return {}


def _make_run_dir(runs_dir: pathlib.Path) -> pathlib.Path:
    """Makes `<runs_dir>/<date>-<time>`; where another run has that already, the next second's."""
    while True:
        run_dir = runs_dir / datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        with contextlib.suppress(FileExistsError):
            run_dir.mkdir(parents=True)
            return run_dir
        time.sleep(0.1)
