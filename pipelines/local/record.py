"""The file `run.json`, which describes a run.

The process that drives the run holds a lock on the file as long as it lives.
"""

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
    """A run of the pipeline on this machine.

    Attributes:
      id: Name of the run's directory.
      runner: What steps run in, `subprocess` or `docker`.
      image: Image of the steps' containers.
      dataset: Name of the dataset, for display.
      cluster: Path or name of the cluster, for display.
      sources: Paths of the data, which containers have to see.
      arguments: Arguments of the pipeline by name.
    """

    id: str
    runner: str
    image: str
    dataset: str
    cluster: str
    sources: Sequence[str] = ()
    arguments: Mapping[str, Any]

    @property
    def dir(self) -> pathlib.Path:
        """Directory in which the run began; it may have been moved since."""
        return pathlib.Path(self.arguments["run_dir"])

    @property
    def label(self) -> str:
        """Label of the run's containers, `KEY=VALUE`."""
        return f"tfrecord-training.run={self.id}"

    @classmethod
    def load(cls, run_dir: str | os.PathLike[str]) -> Self:
        """Reads the `run.json` of a run's directory.

        Raises:
          ValueError: If it is missing or damaged.
        """
        return TypeAdapter(cls).validate_python(read_or_empty(pathlib.Path(run_dir) / FILE))

    def save(self) -> None:
        """Writes `run.json` into the run's directory, in place of one that is there.

        If the directory is gone, it is made again.

        Raises:
          OSError: If it cannot be written.
        """
        write_text(self.dir / FILE, json.dumps(dataclasses.asdict(self), indent=1) + "\n")


def begin(runs_dir: pathlib.Path, arguments: Mapping[str, Any], **facts: Any) -> RunRecord:
    """Makes a directory for a new run, writes its `run.json`, and locks that for this process.

    The directory is `<runs_dir>/<date>-<time>`, and the id of the run is its name.

    Args:
      runs_dir: Directory of the runs, made if it does not exist.
      arguments: Arguments of the pipeline beside those that are added: `run_dir`, `job_dir`,
        `train_args` (which names the logs) and `run_id`.
      **facts: Other fields of the record.

    Returns:
      The record.

    Raises:
      UserError: If the directory or the record cannot be written.
    """
    with writable(f"--runs-dir {runs_dir}"):
        run_dir = _make_run_dir(runs_dir)
        arguments = {
            **arguments,
            "run_dir": str(run_dir),
            "job_dir": str(run_dir / "job"),
            "train_args": [f"--log-dir={run_dir / 'logs'}"],
            "run_id": run_dir.name,
        }
        record = RunRecord(id=run_dir.name, arguments=arguments, **facts)
        record.save()
    lock(run_dir)
    return record


def lock(run_dir: pathlib.Path) -> int:
    """Locks the record of a run. Waits while another process holds the lock.

    Containers, and other machines that share the directory, see by the lock that the run goes on.

    Returns:
      A file descriptor. The lock lasts until it is closed or this process ends, however it ends.

    Raises:
      OSError: If there is no `run.json`, or it cannot be written.
    """
    descriptor = os.open(run_dir / FILE, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def read_or_empty(path: pathlib.Path) -> dict[str, Any]:
    """Returns the object in a JSON file.

    It is empty if the file is missing, incomplete or damaged, or if it has something else than an
    object.
    """
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        content = documents.parse_json(documents.read(file))
        return content if isinstance(content, dict) else {}
    return {}


def _make_run_dir(runs_dir: pathlib.Path) -> pathlib.Path:
    """Makes the directory `<runs_dir>/<date>-<time>`, and returns it.

    If another run has that directory, it waits for the next second. An OSError is raised if the
    directory cannot be made.
    """
    while True:
        run_dir = runs_dir / datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        with contextlib.suppress(FileExistsError):
            run_dir.mkdir(parents=True)
            return run_dir
        time.sleep(0.1)
