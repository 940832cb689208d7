"""Speed and quality of training as it runs, for journal, status file, TensorBoard and terminal."""

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
    """Reports every window in journal, status file and TensorBoard, and prints a line at times.

    Only the chief writes for TensorBoard and prints.
    """

    def __init__(
        self,
        size: TrainingSize,
        task: Task,
        journal: Journal,
        optimizer: keras.optimizers.Optimizer,
        is_chief: bool,
    ) -> None:
        """Prepares to report the steps of a job.

        Args:
          size: Size of the job.
          task: Task of the model, whose loss and metrics the windows have.
          journal: Journal of this replica.
          optimizer: The job's optimizer, whose learning rate is reported.
          is_chief: Whether this replica is the chief.
        """
        self.size, self.is_chief = size, is_chief
        self._task, self._journal, self._optimizer = task, journal, optimizer
        self._warm_steps, self._warm_s = 0, 0.0
        # Windows since the last line. A line is about all of them, as a window may be a single
        # step, whose loss says little.
        self._windows: list[Window] = []
        self._line_at = 0.0
        self._means: dict[str, float] = {}
        self._summary = (
            tf.summary.create_file_writer(journal.path("logs", "train")) if is_chief else None
        )

    @property
    def examples_per_s(self) -> float:
        """Examples per second of the whole job, or 0 before the first ordinary call.

        Only training counts: first calls, saving and export are left out.
        """
        return round(self._warm_steps * self.size.batch / self._warm_s, 1) if self._warm_s else 0.0

    def add(self, step: int, window: Window) -> None:
        """Reports a window; the chief also prints a line of means over those since the last line.

        Every replica writes to its journal and status file, and the chief to TensorBoard's events
        in `logs/train`. A line is due at the first window, after 2 seconds, at the last step, and
        when a stop is requested.

        Args:
          step: Global step after the window.
          window: Result of its steps.

        Raises:
          OSError: If journal or status file cannot be written.
        """
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
        """Returns loss and metrics of the last line that was due, and the attempt's examples per s.

        Values that are not finite are None. Before the first line there are only the examples per
        second.
        """
        return {**plain(self._means), "examples_per_s": self.examples_per_s}
