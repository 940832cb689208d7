"""Record of a finished job, `DONE.json`. Imports no TensorFlow."""

import os
from typing import Any

import pydantic

from common.storage.files import parsed_json, write_text

FILE = "DONE.json"


class Done(pydantic.BaseModel, frozen=True, extra="allow"):
    """Result of a finished job.

    Further fields are the task's metrics over the last reported steps, by name. A value is None if
    the attempt that finished does not know it, since it has only exported the model again.
    """

    step: int  # Global step that the job has reached.
    epochs: float  # Passes over the training split until then.
    # Step of the exported weights, which may be earlier with `--export best`. None means `step`.
    exported_step: int | None = None
    loss: float | None  # Mean over the last reported steps, per example.
    # Evaluations `latest` and `best` on the validation split; empty without any.
    validation: dict[str, Any]
    seconds: float  # Wall time of the attempt that finished, from its start to the export.
    # Value of `--patience` if that has ended training before the last step, else None.
    stopped_early: int | None = None
    # Of all replicas together while training; first calls, saving and export are left out.
    examples_per_s: float | None

    @property
    def exported(self) -> tuple[int, float]:
        """Steps and epochs that the exported model was trained for."""
        step = self.step if self.exported_step is None else self.exported_step
        return step, self.epochs * step / max(1, self.step)

    def save(self, job_dir: str) -> None:
        """Writes `DONE.json` into the job's directory; the job is finished once this returns.

        Raises:
          UserError: If a store refuses the request.
          OSError: If it cannot be written, or a store does not answer.
        """
        write_text(os.path.join(job_dir, FILE), self.model_dump_json(indent=1) + "\n")


def load(job_dir: str) -> Done | None:
    """Returns the record of a finished job, `DONE.json`, or None if the job is not finished.

    Raises:
      UserError: If the file cannot be used.
      ConnectionError: If a store does not answer.
    """
    with parsed_json(os.path.join(job_dir, FILE)) as record:
        return None if record is None else Done.model_validate(record)
