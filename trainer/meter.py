"""Speed and quality of training while it runs: the journal, the status file, TensorBoard, and a line for people."""

import time

import keras
import tensorflow as tf

from common.storage.files import without_nan
from trainer.job.journal import Journal
from trainer.learning import TrainingSize
from trainer.tasks.task import Task
from trainer.train_step import Window

_LINE_S = 2.0


class Meter:
    """Tells of every window in the journal, the status file and TensorBoard, and prints a line now and then."""

    def __init__(
        self,
        size: TrainingSize,
        task: Task,
        journal: Journal,
        optimizer: keras.optimizers.Optimizer,
        chief: bool,
    ) -> None:
        """Takes the size of a job whose steps give the loss and states of the metrics of `task`."""
        self._size, self._journal, self._optimizer, self._chief = size, journal, optimizer, chief
        self._task = task
        self._warm_steps, self._warm_s = 0, 0.0
        # Since the last line: a window may be a single step, whose loss says little.
        self._since: list[Window] = []
        self._line_at = 0.0
        self._line = dict.fromkeys(("loss", *task.metric_names), float("nan"))
        self._summary = tf.summary.create_file_writer(journal.outbox.path("logs", "train")) if chief else None

    @property
    def examples_per_s(self) -> float:
        """Of the whole job, over training only: first calls, saving and export are left out."""
        return self._warm_steps * self._size.batch / self._warm_s if self._warm_s else 0.0

    def add(self, step: int, window: Window) -> None:
        """Counts one window that ended at `step`."""
        if window.warm:
            self._warm_steps += window.steps
            self._warm_s += window.seconds
        self._since.append(window)
        means = self._means([window])
        speed = round(self.examples_per_s, 1)
        replica_speed = round(speed / self._size.replicas, 1)
        rate = (
            {"learning_rate": float(keras.ops.convert_to_numpy(self._optimizer.learning_rate))} if self._chief else {}
        )
        told = {**means, **rate, "seconds": round(window.seconds, 4), "examples_per_s": speed}
        self._journal.event("step", step, **told, replica_examples_per_s=replica_speed)
        self._journal.status("training", step, examples_per_s=speed, **means, train_steps=self._size.last_step)
        if self._chief:
            with self._summary.as_default(step=step):
                for name, value in {**means, **rate, "examples_per_s": speed}.items():
                    tf.summary.scalar(name, value)
        if time.monotonic() - self._line_at >= _LINE_S or step >= self._size.last_step or window.stop:
            self._tell(step, speed)

    def _means(self, windows: list[Window]) -> dict[str, float]:
        loss, *states = map(sum, zip(*(w.sums for w in windows), strict=True))
        return {"loss": loss / sum(w.steps for w in windows), **self._task.results(states)}

    def _tell(self, step: int, speed: float) -> None:
        self._line = self._means(self._since)
        self._since = []
        self._line_at = time.monotonic()
        if self._chief:
            self._summary.flush()
            values = "  ".join(f"{name} {value:.4f}" for name, value in self._line.items())
            print(f"step {step}/{self._size.last_step}  {values}  {speed:.0f} examples/s", flush=True)

    def final(self) -> dict[str, float | None]:
        """Loss and metrics of the last line, and examples per second of the attempt, for `DONE.json`."""
        return {**without_nan(self._line), "examples_per_s": round(self.examples_per_s, 1)}
