"""Evaluation on the validation split, by the chief or by a replica of its own, and what is remembered of it.

`validation.json` in the job directory holds the latest and the best evaluation (`step` and the task's score), and the
steps of those since the best, none of them better; `best/ckpt-<step>` holds the whole state of the best. Selection is
never on the test split.
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from etils import epath

from trainer import tuning
from trainer.base.errors import reading
from trainer.base.files import read_json, store_errors, write_text
from trainer.base.manifest import Manifest
from trainer.data import records
from trainer.job_dir.checkpoint import remove
from trainer.job_dir.journal import Journal
from trainer.job_dir.state import State
from trainer.nn import in_training, weights
from trainer.nn.models.registry import Builder
from trainer.nn.tasks.base import Task
from trainer.options import Options

SPLIT = "validation"
FILE = "validation.json"
_KEPT_BYTES = 256 << 20


class Validator:
    """Scores states on the validation split, in a model of its own outside any strategy."""

    def __init__(self, build: Builder, manifest: Manifest, opts: Options, journal: Journal) -> None:
        self.scores, self._task = Scores(opts.job_dir, build.task), build.task
        self._build, self._manifest, self._opts, self._journal = build, manifest, opts, journal
        self._writer: tf.summary.SummaryWriter | None = None
        self._kept: list[records.Columns] | None = None
        self._model: keras.Model | None = None
        self._function = tf.function(self._sums, reduce_retracing=True, autograph=False)

    def evaluate(self, state: State, interrupted: Callable[[], bool]) -> bool:
        """Scores the copies of `state` and tells it everywhere. Returns False when `interrupted` said to leave it."""
        step, start = state.step, time.perf_counter()
        self._journal.status("evaluating", step)
        score = self._score(state.weights(averaged=self._opts.ema is not None), interrupted)
        if score is None:
            return False
        self._writer = self._writer or tf.summary.create_file_writer(self._journal.outbox.path("logs", SPLIT))
        with self._writer.as_default(step=step):
            for name, value in score.items():
                tf.summary.scalar(name, value)
        self._writer.flush()
        best = self.scores.add(step, score, state)
        tuning.report(score, step)
        self._journal.event("evaluation", step, **score, best=best, seconds=round(time.perf_counter() - start, 3))
        values = "  ".join(f"{name} {value:.4f}" for name, value in score.items())
        print(f"step {step}  validation {values}", flush=True)
        return True

    def _score(self, values: Mapping[str, np.ndarray], interrupted: Callable[[], bool]) -> dict[str, float] | None:
        """The task's score of the split; None when `interrupted` says that there is no time for it."""
        self._model = self._model or self._build()  # not before: a start must not wait for it
        weights.put(values, self._model)
        sums, evidence = 0.0, []
        for batch in self._batches():
            self._journal.alive()
            if interrupted():
                return None
            features = dict(batch)
            labels = features.pop(self._manifest.label)
            part, *found = self._function(features, labels)
            sums = sums + part.numpy().astype(np.float64)
            evidence.append(tuple(found))
        return self._task.score((sums / self._manifest.split(SPLIT).examples).tolist(), evidence)

    def _batches(self) -> Iterable[records.Columns]:
        """The split as the model takes it; kept, if that is small."""
        if self._kept is not None:
            return self._kept
        split = records.batches(self._manifest, self._opts.data_dir, SPLIT, self._opts.eval_batch_size)
        batches = map(self._build.prepare, split)
        example_bytes = sum(math.prod(f.shape) * tf.as_dtype(f.dtype).size for f in self._manifest.features)
        if self._manifest.split(SPLIT).examples * example_bytes > _KEPT_BYTES:
            return batches
        self._kept = list(batches)
        return self._kept

    def _sums(self, features: records.Columns, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """The task's sums of a batch, and its evidence."""
        outputs = self._model(features, training=False)
        loss, *metrics = self._task.sums(outputs, labels)
        if losses := self._model.losses:
            loss += tf.cast(tf.shape(labels)[0], tf.float32) * in_training.total(losses)
        return tf.stack([loss, *metrics]), *self._task.evidence(outputs, labels)


class Scores:
    """The evaluations of the job in `job_dir`."""

    def __init__(self, job_dir: str, task: Task) -> None:
        self.job_dir, self._task = job_dir, task

    def load(self) -> dict[str, dict[str, Any]]:
        """`latest` and `best`; empty before the first."""
        path = epath.Path(self.job_dir) / FILE
        with reading(path):
            if (scores := read_json(path)) is None:
                return {}
            return {which: {**scores[which], "step": int(scores[which]["step"])} for which in ("latest", "best")}

    def without_better(self, step: int) -> int:
        """How many evaluations there were up to a step since the best one. Later ones are yet to be made again."""
        return sum(scored <= step for scored in self._since_best())

    def _since_best(self) -> list[int]:
        path = epath.Path(self.job_dir) / FILE
        with reading(path):
            return list(map(int, (read_json(path) or {}).get("since_best", [])))

    @property
    def latest_step(self) -> int:
        """The last step that was scored, or 0."""
        return self.load().get("latest", {}).get("step", 0)

    def add(self, step: int, score: dict[str, float], state: State) -> bool:
        """Writes down the score of `state`, and keeps the state if it is the best yet. Returns whether it is."""
        known, latest = self.load(), {"step": step, **score}
        best = known.get("best")
        better = best is None or self._task.rank(score) > self._task.rank(best)
        # What an attempt had scored that got further does not count twice.
        since = [] if better else [s for s in self._since_best() if s < step] + [step] * (step > best["step"])
        if better:
            with store_errors():
                state.checkpoint.write(self._best(step))
        write_text(
            epath.Path(self.job_dir) / FILE,
            json.dumps({"latest": latest, "best": latest if better else best, "since_best": since}, indent=1) + "\n",
        )
        if better and best and best["step"] != step:
            remove(self._best(best["step"]))
        return better

    def restore_best(self, state: State) -> int:
        """Reads the best state into `state`. Returns its step.

        Raises:
          UserError: If it is damaged or gone.
        """
        best = self._best(self.load()["best"]["step"])
        with reading(best, "the same command with --export last exports the last state"), store_errors():
            state.checkpoint.read(best).assert_consumed()
        return state.step

    def _best(self, step: int) -> str:
        return os.path.join(self.job_dir, "best", f"ckpt-{step}")
