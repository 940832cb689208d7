"""Evaluation on the validation split while training goes on, and what is remembered of it.

`validation.json` in the job directory holds the latest and the best evaluation (`step`, `loss`, `accuracy`);
`best/ckpt-<step>` holds the whole state of the best. Selection is never on the test split.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from etils import epath

from trainer import records
from trainer.files import write_text
from trainer.manifest import Manifest
from trainer.state import State

SPLIT = "validation"
FILE = "validation.json"


class Validator:
    """Scores weights on the validation split, in a model of its own outside any strategy."""

    def __init__(self, build: Callable[[], keras.Model], manifest: Manifest, data_dir: str, batch_size: int) -> None:
        self._model, self._batch_size = build(), batch_size
        self._columns = records.resident(manifest, data_dir, SPLIT)
        self._labels = self._columns.pop(manifest.label)
        self._function = tf.function(self._sums, reduce_retracing=True)

    def score(self, weights: list[np.ndarray], interrupted: Callable[[], bool]) -> dict[str, float] | None:
        """Mean `loss` and `accuracy` over the split; None when `interrupted` says that there is no time for it."""
        self._model.set_weights(weights)
        examples, sums = len(self._labels), np.zeros(2)
        for start in range(0, examples, self._batch_size):
            if interrupted():
                return None
            batch = slice(start, start + self._batch_size)
            features = {name: column[batch] for name, column in self._columns.items()}
            sums += self._function(features, self._labels[batch]).numpy()
        loss, accuracy = (sums / examples).tolist()
        return {"loss": loss, "accuracy": accuracy}

    def _sums(self, features: records.Columns, labels: tf.Tensor) -> tf.Tensor:
        logits = self._model(features, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        hits = tf.cast(tf.equal(tf.argmax(logits, axis=1), labels), tf.float32)
        return tf.stack([tf.reduce_sum(losses), tf.reduce_sum(hits)])


class Scores:
    """The evaluations of a job."""

    def __init__(self, job_dir: str) -> None:
        self._job_dir = job_dir
        self._writer: tf.summary.SummaryWriter | None = None

    def load(self) -> dict[str, dict[str, Any]]:
        """`latest` and `best`; empty before the first."""
        path = epath.Path(self._job_dir) / FILE
        return json.loads(path.read_text()) if path.exists() else {}

    @property
    def latest_step(self) -> int:
        """The last step that was scored, or 0."""
        return self.load().get("latest", {}).get("step", 0)

    def add(self, step: int, score: dict[str, float], state: State) -> bool:
        """Writes down the score of `state`, and keeps the state if it is the best yet. Returns whether it is."""
        self._writer = self._writer or tf.summary.create_file_writer(os.path.join(self._job_dir, "logs", SPLIT))
        with self._writer.as_default(step=step):
            for name, value in score.items():
                tf.summary.scalar(name, value)
        self._writer.flush()
        known, latest = self.load(), {"step": step, **score}
        best = known.get("best")
        better = best is None or (score["accuracy"], -score["loss"]) > (best["accuracy"], -best["loss"])
        if better:
            state.checkpoint.write(self._best(step))
        write_text(
            epath.Path(self._job_dir) / FILE,
            json.dumps({"latest": latest, "best": latest if better else best}, indent=1) + "\n",
        )
        if better and best and best["step"] != step:
            for path in tf.io.gfile.glob(f"{self._best(best['step'])}.*"):
                tf.io.gfile.remove(path)
        return better

    def restore_best(self, state: State) -> int:
        """Reads the best state into `state`. Returns its step."""
        state.checkpoint.read(self._best(self.load()["best"]["step"])).assert_consumed()
        return state.step

    def _best(self, step: int) -> str:
        return os.path.join(self._job_dir, "best", f"ckpt-{step}")
