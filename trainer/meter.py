"""Speed and quality of training while it runs: a line for people, the journal, the status file and TensorBoard."""

from __future__ import annotations

import os
import time

import keras
import tensorflow as tf

from trainer.journal import Journal
from trainer.options import Options
from trainer.steps import Window

_LINE_S = 2.0


class Meter:
    """Adds windows up between reports, and over the whole attempt."""

    def __init__(
        self,
        opts: Options,
        journal: Journal,
        optimizer: keras.optimizers.Optimizer,
        global_batch: int,
        replicas: int,
        chief: bool,
    ) -> None:
        self._train_steps, self._journal, self._optimizer = opts.train_steps, journal, optimizer
        self._batch, self._replicas, self._chief = global_batch, replicas, chief
        self._steps = self._reported_at = 0
        self._loss = self._correct = self._seconds = 0.0
        self._warm_steps, self._warm_s = 0, 0.0
        self._last: dict[str, float] = {"loss": float("nan"), "accuracy": float("nan")}
        self._summary = tf.summary.create_file_writer(os.path.join(opts.job_dir, "logs")) if chief else None

    @property
    def examples_per_s(self) -> float:
        """Of the whole job, over training only: first calls, saving and export are left out."""
        return self._warm_steps * self._batch / self._warm_s if self._warm_s else 0.0

    def add(self, step: int, window: Window) -> None:
        """Counts one window that ended at `step`; reports every two seconds and at the end."""
        self._steps += window.steps
        self._loss += window.loss
        self._correct += window.correct
        if window.warm:
            self._warm_steps += window.steps
            self._warm_s += window.seconds
        if time.monotonic() - self._reported_at >= _LINE_S or step >= self._train_steps or window.stop:
            self._report(step)

    def _report(self, step: int) -> None:
        self._last = {"loss": self._loss / self._steps, "accuracy": self._correct / (self._steps * self._batch)}
        speed = round(self.examples_per_s, 1)
        self._journal.event(
            "step", step, **self._last, examples_per_s=speed, replica_examples_per_s=round(speed / self._replicas, 1)
        )
        self._journal.status("training", step, speed, **self._last, train_steps=self._train_steps)
        if self._chief:
            print(
                f"step {step}/{self._train_steps}  loss {self._last['loss']:.4f}  "
                f"accuracy {self._last['accuracy']:.4f}  {speed:.0f} examples/s",
                flush=True,
            )
            with self._summary.as_default(step=step):
                for name, value in {**self._last, "examples_per_s": speed}.items():
                    tf.summary.scalar(name, value)
                tf.summary.scalar("learning_rate", float(keras.ops.convert_to_numpy(self._optimizer.learning_rate)))
            self._summary.flush()
        self._steps, self._loss, self._correct = 0, 0.0, 0.0
        self._reported_at = time.monotonic()

    def final(self) -> dict[str, float]:
        """Loss and accuracy of the last report, and examples per second of the attempt, for `DONE.json`."""
        return {**self._last, "examples_per_s": round(self.examples_per_s, 1)}
