"""The study file: one job in several variants, each repeated.

study = load("studies/workers.yaml")
for cell in study.cells: study.flags(cell, repeat=0)
"""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from components.convert.options import Options as ConvertOptions
from components.train.backends.plan import trainer_flags
from components.train.cluster.checks import Model, Name, number, read
from components.train.cluster.cluster_file import Cluster
from trainer import options
from trainer.base.errors import UserError, about, readable
from trainer.base.files import stated, write_text
from trainer.base.strict_yaml import parse

STATE = "study.json"


class Cell(Model, use_attribute_docstrings=True):
    """One variant of the job."""

    name: Annotated[str, Field(strict=True, pattern=r"^\w[\w.-]*$", examples=["one"])]
    """Its name, which job directories begin with."""
    cluster: Name = "clusters/local.yaml"
    """Cluster file, as `python -m components.train --cluster` takes it."""
    train: str = ""
    """Flags of the trainer for this cell alone; they win."""


class Study(Model, use_attribute_docstrings=True):
    """What stands in a study file."""

    asks: Annotated[Name, Field(examples=["What do more workers bring?"])]
    """The question that it answers."""
    convert: Annotated[Name, Field(examples=["--dataset digits"])]
    """Flags of `python -m components.convert`, without --output."""
    train: Annotated[Name, Field(examples=["--train-epochs 1"])]
    """Flags of the trainer for all cells, without --data-dir and --job-dir."""
    repeats: number(1, 100) = 3
    """How often each cell is run; the seed of the trainer is the number of the repeat."""
    cells: Annotated[list[Cell], Field(min_length=1)]
    """The variants; the others are compared with the first."""

    def flags(self, cell: Cell, repeat: int) -> list[str]:
        """The trainer's flags but for its directories."""
        return [f"--seed={repeat}", *shlex.split(f"{self.train} {cell.train}")]

    def conversion(self, output: str, source: Sequence[str]) -> ConvertOptions:
        """Options of the conversion; a source that is given goes before that of the file."""
        fixed: dict[str, Any] = {"source": list(source)} if source else {}
        with about("convert"):
            return ConvertOptions.parse(shlex.split(self.convert), "components.convert", output=output, **fixed)

    def trained(self, cell: Cell) -> tuple[Cluster, options.Options]:
        """What a cell trains on, and the trainer's options; what its replicas would refuse is refused now."""
        with about(f"cell {cell.name}"):
            flags = self.flags(cell, 0)
            cluster = Cluster.load(cell.cluster, flags)
            found = options.parse(["--data-dir", "-", "--job-dir", "-", *trainer_flags(cluster, flags)])
            if (found.data_dir, found.job_dir) != ("-", "-"):
                raise UserError("--data-dir and --job-dir come from the study; leave them out")
            return cluster, found


def load(path: str) -> Study:
    """Reads a study file; what cannot be run is a `UserError` that names file, place, value and repair."""
    with readable(path), about(path):
        study = read(Study, parse(Path(path).read_bytes()))
        if len({cell.name for cell in study.cells}) < len(study.cells):
            raise UserError("cells: two have the same name; each needs one of its own")
        try:
            study.conversion("-", ())
            for cell in study.cells:
                study.trained(cell)
        except ValueError as error:  # of a quotation that is open
            raise UserError(str(error)) from None
        return study


def settle(study: Study, directory: Path, source: Sequence[str]) -> None:
    """Notes what the study in a directory is of; cells may be added later, and be repeated more often, but not change."""
    now: dict[str, list[Any]] = {"convert": [study.convert, *source]}
    for cell in study.cells:
        cluster = study.trained(cell)[0].model_dump(exclude_defaults=True, exclude_none=True)
        now[f"cell {cell.name}"] = [cluster, study.train, cell.train]
    with stated(directory / STATE) as before:
        for name, value in (before or {}).items():
            if now.setdefault(name, value) != value:
                raise UserError(f"{directory} has results of another {name}: {value}; use another --output")
    write_text(directory / STATE, json.dumps(now, indent=1) + "\n")
