"""`run.json`: what a run was asked to do, and by which process."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar

import psutil

from trainer.files import write_text

FILE = "run.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run of the pipeline on this machine.

    Attributes:
      id: Name of its directory, and its label everywhere else.
      runner: `subprocess` or `docker`.
      image: Container image of the steps.
      cache: Whether results of earlier runs may be taken.
      arguments: Of the pipeline.
      owner: `pid` and `create_time` of the process that drives it.
    """

    label: ClassVar[str] = "tfrecord-training.run"

    id: str
    runner: str
    image: str
    cache: bool
    arguments: Mapping[str, Any]
    owner: Mapping[str, float]

    @classmethod
    def load(cls, run_dir: str | os.PathLike[str]) -> RunRecord:
        """Reads `run.json`."""
        return cls(**json.loads((pathlib.Path(run_dir) / FILE).read_text(encoding="utf-8")))

    def save(self, run_dir: pathlib.Path) -> None:
        """Writes `run.json`."""
        write_text(run_dir / FILE, json.dumps(dataclasses.asdict(self), indent=1) + "\n")


def this_process() -> dict[str, float]:
    """The owner that this process is."""
    return {"pid": os.getpid(), "create_time": psutil.Process().create_time()}


def new_run_dir(runs: pathlib.Path) -> pathlib.Path:
    """Makes `<runs>/<date>-<time>`, with a number behind it when that is taken."""
    name = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    for attempt in range(1, 100):
        directory = runs / (name if attempt == 1 else f"{name}-{attempt}")
        try:
            directory.mkdir(parents=True)
            return directory
        except FileExistsError:
            continue
    raise FileExistsError(f"{runs / name}: a hundred runs in one second")
