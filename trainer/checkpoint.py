"""Training state on disk: `checkpoints/ckpt-<step>`, the newest few, each complete or absent."""

from __future__ import annotations

import os
import time

import keras
import tensorflow as tf


class Checkpoints:
    """Saves and restores step, weights and optimizer state.

    Every replica makes one, inside the strategy's scope, and restores from the same directory; only the chief saves.
    The optimizer must be built already, so that its variables exist to be restored into.
    """

    def __init__(self, job_dir: str, model: keras.Model, optimizer: keras.optimizers.Optimizer, *, keep: int) -> None:
        self._step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        self._checkpoint = tf.train.Checkpoint(step=self._step, model=model, optimizer=optimizer)
        self._directory = os.path.join(job_dir, "checkpoints")
        self._keep = keep
        self._manager: tf.train.CheckpointManager | None = None

    def restore(self) -> int:
        """Loads the newest checkpoint, if there is one. Returns its step, or 0."""
        # Saving writes the new files before it names them, so the newest named one is complete whatever was killed.
        latest = tf.train.latest_checkpoint(self._directory)
        if latest is None:
            return 0
        self._checkpoint.restore(latest).assert_consumed()
        return int(self._step.numpy())

    def save(self, step: int) -> float:
        """Writes `ckpt-<step>` and deletes those beyond the newest `keep`. Returns the seconds it took."""
        start = time.perf_counter()
        # Made at the first save: a manager writes into the directory, and only the chief may.
        self._manager = self._manager or tf.train.CheckpointManager(
            self._checkpoint, self._directory, max_to_keep=self._keep
        )
        self._step.assign(step)
        self._manager.save(checkpoint_number=step)
        return time.perf_counter() - start
