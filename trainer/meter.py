"""Speed and quality of training while it runs: the journal, the status file, TensorBoard, and a line for people."""

import time

import keras
import tensorflow as tf

from common.documents import plain
from trainer.job.journal import Journal
from trainer.learning import TrainingSize
from trainer.tasks.task import Task
from trainer.train_step import Window

_LINE_S = 2.0


class Meter:
    """Reports every window in the journal, the status file and TensorBoard, and prints a line now and then."""

    def __init__(
        self,
        size: TrainingSize,
        task: Task,
        journal: Journal,
        optimizer: keras.optimizers.Optimizer,
        is_chief: bool,
    ) -> None:
        """Takes the size of a job whose steps give the loss and states of the metrics of `task`."""
        self.size, self.is_chief = size, is_chief
        self._task, self._journal, self._optimizer = task, journal, optimizer
        self._warm_steps, self._warm_s = 0, 0.0
        # Since the last line: a window may be a single step, whose loss says little.
        self._windows: list[Window] = []
        self._line_at = 0.0
        self._means: dict[str, float] = {}
        self._summary = (
            tf.summary.create_file_writer(journal.path("logs", "train")) if is_chief else None
        )

    @property
    def examples_per_s(self) -> float:
        """Examples per second of the whole job, over training only: first calls, saving and export are left out."""
        return round(self._warm_steps * self.size.batch / self._warm_s, 1) if self._warm_s else 0.0

    def add(self, step: int, window: Window) -> None:
        """Records the steps of a window, of which `step` is the last."""
        if window.warm:
            self._warm_steps += window.steps
            self._warm_s += window.seconds
        self._windows.append(window)
        values = {**self._mean([window]), "examples_per_s": self.examples_per_s}
        self._journal.status("training", step, **values, train_steps=self.size.last_step)
        if self._summary:
            values["learning_rate"] = float(
                keras.ops.convert_to_numpy(self._optimizer.learning_rate)
            )
            with self._summary.as_default(step=step):
                for name, value in values.items():
                    tf.summary.scalar(name, value)
        self._journal.event("step", step, **values, seconds=round(window.seconds, 4))
        if (
            time.monotonic() - self._line_at >= _LINE_S
            or step >= self.size.last_step
            or window.stop
        ):
            self._means = self._mean(self._windows)
            self._windows = []
            self._line_at = time.monotonic()
            if self._summary:
                self._summary.flush()
                means = "  ".join(f"{name} {value:.4f}" for name, value in self._means.items())
                print(
                    f"step {step}/{self.size.last_step}  {means}  {self.examples_per_s:.0f} "
                    "examples/s"
                )

    def _mean(self, windows: list[Window]) -> dict[str, float]:
        loss, *states = map(sum, zip(*(window.sums for window in windows), strict=True))
        return {
            "loss": loss / sum(window.steps for window in windows),
            **self._task.results(states),
        }

    def final(self) -> dict[str, float | None]:
        """Returns loss and metrics of the last line, if there was one, and examples per second of the attempt."""
        return {**plain(self._means), "examples_per_s": self.examples_per_s}
