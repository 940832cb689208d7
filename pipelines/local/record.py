"""`run.json`: what a run was asked to do; locked as long as the process that drives it lives."""

import contextlib
import dataclasses
import datetime
import fcntl
import itertools
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from pydantic import TypeAdapter

from common import bounded_json
from common.errors import writable
from common.storage.files import write_text

FILE = "run.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run of the pipeline on this machine."""

    label: ClassVar[str] = "tfrecord-training.run"

    id: str = ""  # Name of its directory, and its label everywhere else; empty before it has one.
    runner: str  # `subprocess` or `docker`.
    image: str  # Of the steps' containers.
    dataset: str  # As it was asked for, for people to see, and the `cluster`.
    cluster: str
    sources: Sequence[str] = ()  # Paths of the data, for the steps to see.
    fail_on_reject: bool = False  # Whether a rejected model gives the run an exit code of its own.
    arguments: Mapping[str, Any]  # Of the pipeline.

    @classmethod
    def load(cls, run_dir: str | os.PathLike[str]) -> Self:
        """Reads `run.json`."""
        with (pathlib.Path(run_dir) / FILE).open("rb") as file:
            return TypeAdapter(cls).validate_python(bounded_json.parse(bounded_json.read(file)))

    def save(self, run_dir: pathlib.Path) -> None:
        """Writes `run.json`."""
        write_text(run_dir / FILE, json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    def begin(self, runs_dir: pathlib.Path) -> tuple[Self, pathlib.Path]:
        """Makes a run of this, with a directory that this process holds. Returns both."""
        with writable(f"--runs-dir {runs_dir}"):
            run_dir = _new_run_dir(runs_dir)
            places = {
                "run_dir": run_dir,
                "job_dir": run_dir / "job",
                "log_dir": run_dir / "logs",
                "run_id": run_dir.name,
            }
            arguments = {**self.arguments, **{name: str(place) for name, place in places.items()}}
            record = dataclasses.replace(self, id=run_dir.name, arguments=arguments)
            record.save(run_dir)
        hold(run_dir)
        return record, run_dir


def hold(run_dir: pathlib.Path) -> int:
    """Locks the run's record until this process ends, however it does, or the descriptor that is returned is closed.

    So other containers, and other machines that share the directory, see as well that the run goes on.
    """
    descriptor = os.open(run_dir / FILE, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _new_run_dir(runs: pathlib.Path) -> pathlib.Path:
    """Makes `<runs>/<date>-<time>`, with a number behind it when that is taken."""
    first = directory = runs / datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    for number in itertools.count(2):
        with contextlib.suppress(FileExistsError):
            directory.mkdir(parents=True)
            return directory
        directory = first.with_name(f"{first.name}-{number}")


def read_if_whole(path: pathlib.Path) -> dict[str, Any]:
    """What a file says; nothing while it is not there, or not whole."""
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        content = bounded_json.parse(bounded_json.read(file))
        return content if isinstance(content, dict) else {}
    return {}
