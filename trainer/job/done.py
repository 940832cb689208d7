"""`DONE.json`: the job has reached its step. Imports no TensorFlow."""

import os
from typing import Any

import pydantic

from common.storage.files import parsed_json, write_text

FILE = "DONE.json"


class Done(pydantic.BaseModel, frozen=True, extra="allow"):
    """The end of a job, with the task's metrics over the last reported steps by their names.

    What an attempt that only exports again does not know any more is None.
    """

    step: int  # global step reached
    epochs: float  # passes over the training split until then
    exported_step: int | None = (
        None  # whose weights the exported model has; another one with `--export best`
    )
    loss: float | None  # mean over the last reported steps, per example
    validation: dict[
        str, Any
    ]  # the `latest` and the `best` evaluation on the validation split, if there was any
    seconds: float  # wall time of the attempt that finished, from its start to the export
    stopped_early: int | None = (
        None  # by `--patience` of so many evaluations, before the last step asked for
    )
    examples_per_s: (
        float | None
    )  # of the whole job while training; first call, saving and export excluded

    @property
    def exported(self) -> tuple[int, float]:
        """Steps and epochs that the exported model was trained for."""
        step = self.step if self.exported_step is None else self.exported_step
        return step, self.epochs * step / max(1, self.step)

    def save(self, job_dir: str) -> None:
        """Writes the file; after this the job is finished."""
        write_text(os.path.join(job_dir, FILE), self.model_dump_json(indent=1) + "\n")


def load(job_dir: str) -> Done | None:
    """Returns the record of a finished job, or None."""
    with parsed_json(os.path.join(job_dir, FILE)) as record:
        return None if record is None else Done.model_validate(record)
