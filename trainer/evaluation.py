"""Evaluation on the validation split, by the replicas that train or by one of its own, and what is remembered of it.

`validation.json` in the job directory holds the latest and the best evaluation (`step` and the
task's score), and the steps of those since the best, none of them better; `best/ckpt-<step>` holds
the whole state of the best. A value that is not finite is null there. A score whose loss or ranking
metric is not finite is never the best, and does not count against `--patience`. Selection is never
on the test split.

Replicas that evaluate together score a part of the split each. The score does not depend on how
many they are: their batches are those of one, and the states of batches are added exactly.
"""

import dataclasses
import functools
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from common.documents import plain
from common.errors import reading, store_errors
from common.manifest import Manifest
from common.storage.files import parsed_json, write_text
from common.storage.storage import is_remote
from trainer import learning
from trainer.cluster.member import POOL_ROLES
from trainer.cluster.shutdown import Stop
from trainer.data import records
from trainer.data.features import Columns
from trainer.job import done
from trainer.job.checkpoints import Checkpoints, remove
from trainer.job.journal import Journal
from trainer.job.state import State
from trainer.models.registry import Builder
from trainer.nn import randomness, weights
from trainer.options import Options
from trainer.tasks.task import Task

SPLIT = "validation"
# By which Vertex AI (`HyperparameterTuningJob`), and AI Platform before it, have a trial of a study
# write its metrics.
_STUDY = "CLOUD_ML_HP_METRIC_FILE"
_POLL_S, _POLL_IN_STORE_S = 0.5, 5.0
_TIMEOUT_S = 600.0  # that the chief waits at the end for the evaluator's last score


class Scores:
    """The evaluations of the job in `job_dir`."""

    def __init__(self, job_dir: str, task: Task) -> None:
        self._job_dir, self._path, self._task = (
            job_dir,
            os.path.join(job_dir, "validation.json"),
            task,
        )

    def load(self) -> dict[str, dict[str, Any]]:
        """Returns `latest` and, once a score was finite, `best`; nothing before the first evaluation."""
        with parsed_json(self._path) as scores:
            return {
                which: {**score, "step": int(score["step"])}
                for which in ("latest", "best")
                if (score := (scores or {}).get(which))
            }

    def _since_best(self) -> list[int]:
        with parsed_json(self._path) as scores:
            return list(map(int, (scores or {}).get("since_best", [])))

    def is_exhausted(self, step: int, patience: int) -> bool:
        """Returns whether the last `patience` evaluations, up to this step, were all no better than the best one.

        Later ones are yet to be made again.
        """
        enough = sum(scored <= step for scored in self._since_best()) >= patience
        if enough:
            print(f"step {step}  no better score in {patience} evaluations; training ends early")
        return enough

    @property
    def latest_step(self) -> int:
        """Last step that was scored, or 0."""
        return self.load().get("latest", {}).get("step", 0)

    def add(self, step: int, score: dict[str, float], state: State) -> bool:
        """Writes down the score of `state`, and keeps the state if it is the best yet. Returns whether it is."""
        latest = {"step": step, **plain(score)}
        best = self.load().get("best")
        rank = self._task.rank(score)
        is_finite = all(map(math.isfinite, rank))
        better = is_finite and (best is None or rank > self._task.rank(best))
        # What an attempt had scored that got further does not count twice.
        since_best = [scored for scored in self._since_best() if scored < step]
        if better:
            since_best = []
            with store_errors():
                state.checkpoint.write(self._best(step))
        elif is_finite and step > best["step"]:
            since_best.append(step)
        record = {"latest": latest, "best": latest if better else best, "since_best": since_best}
        write_text(self._path, json.dumps(record, indent=1) + "\n")
        if better and best and best["step"] != step:
            remove(self._best(best["step"]))
        return better

    def restore_best(self, state: State) -> int:
        """Reads the best state into `state`. Returns its step."""
        best = self._best(self.load()["best"]["step"])
        with (
            reading(best, "the same command with --export last exports the last state"),
            store_errors(),
        ):
            state.checkpoint.read(best).assert_consumed()
        return state.step

    def _best(self, step: int) -> str:
        return os.path.join(self._job_dir, "best", f"ckpt-{step}")


@dataclasses.dataclass(frozen=True, eq=False)
class Validator:
    """Scores states on the validation split, in a model of its own in every process, and reports the scores."""

    opts: Options
    build: Builder
    manifest: Manifest
    scores: Scores
    journal: Journal
    strategy: tf.distribute.Strategy  # of the replicas that evaluate together
    reports: bool = True  # whether this one does

    @functools.cached_property
    def _model(self) -> keras.Model:  # not made before it is needed: a start must not wait for it
        with self.strategy.scope():
            return self.build()

    @functools.cached_property
    def _writer(self) -> tf.summary.SummaryWriter:
        return tf.summary.create_file_writer(self.journal.path("logs", SPLIT))

    def evaluate(self, state: State, interrupted: Callable[[], bool]) -> bool:
        """Scores the copies of `state` and reports it everywhere. All who evaluate together call it with the same state.

        Returns False when `interrupted` has said on any of them to leave it.
        """
        step, start = state.step, time.perf_counter()
        self.journal.status("evaluating", step)
        score = self.score(state.weights(), interrupted)
        if score is None or not self.reports:
            return score is not None
        with self._writer.as_default(step=step):
            for name, value in score.items():
                tf.summary.scalar(name, value)
                if _STUDY in os.environ:
                    _study().report_hyperparameter_tuning_metric(name, value, step)
        self._writer.flush()
        best = self.scores.add(step, score, state)
        self.journal.event(
            "evaluation", step, **score, best=best, seconds=round(time.perf_counter() - start, 3)
        )
        values = "  ".join(f"{name} {value:.4f}" for name, value in score.items())
        print(f"step {step}  validation {values}")
        return True

    def score(
        self, values: Mapping[str, np.ndarray], interrupted: Callable[[], bool]
    ) -> dict[str, float] | None:
        """Returns the task's score of a model with these weights, on all replicas, which must be given the same ones.

        None when `interrupted`, which is asked before every batch, says on any of them that there
        is no time for it.
        """
        weights.put(values, self._model)
        replicas = self.strategy.num_replicas_in_sync
        batch_size = self.opts.eval_batch_size
        read = [
            replica_batches(self.manifest, self.opts.data_dir, batch_size, replica, replicas)
            for replica in range(replicas)
        ]

        def take(where: tf.distribute.experimental.ValueContext) -> tuple[Columns, tf.Tensor]:
            batch, counts = next(read[where.replica_id_in_sync_group])
            return self.build.prepare(batch), tf.constant(counts)

        examples, rounds = self.manifest.split(SPLIT).examples, []
        for _ in range(math.ceil(examples / (batch_size * replicas))):
            batch = self.strategy.experimental_distribute_values_from_function(take)
            self.journal.alive()
            sums = self._round(*batch, tf.constant([float(interrupted())])).numpy()
            if sums[:, 0].any():
                return None
            rounds.append(sums)
        _, loss, *states = map(math.fsum, np.concatenate(rounds).T.tolist())
        return {"loss": loss / examples, **self.build.task.results(states)}

    @tf.function(reduce_retracing=True, autograph=False)
    def _round(self, *batch: Any) -> tf.Tensor:
        """Returns the sums of all replicas, [replicas, values]."""
        return self.strategy.gather(self.strategy.run(self._sums, args=batch), axis=0)

    def _sums(self, batch: Columns, counts: tf.Tensor, wish: tf.Tensor) -> tf.Tensor:
        """Returns the wish to stop, the loss and the states of the metrics, [1, values]; 0 of a batch that does not count."""
        task = self.build.task
        features = dict(batch)
        labels = features.pop(self.manifest.label)
        outputs = self._model(features, training=False)
        loss, valid = task.loss_sum(labels, outputs)
        examples = tf.cast(tf.shape(labels)[0], tf.float32)
        if valid is not None:
            loss *= tf.math.divide_no_nan(examples, valid)
        loss += examples * randomness.total(self._model.losses)
        sums = tf.concat([[loss], *task.states(labels, outputs)], 0)
        return tf.concat([wish, tf.where(counts, sums, 0.0)], 0)[tf.newaxis]


def replica_batches(
    manifest: Manifest, data_dir: str, batch_size: int, replica: int, replicas: int
) -> Iterator[tuple[Columns, bool]]:
    """Yields as many batches for each replica, and whether each counts there.

    Batches are those of the whole split, on however many replicas. All replicas take part in every
    round, since they agree in each whether to go on; so one whose part is shorter is given batches
    of its neighbours too, which do not count.
    """
    count = math.ceil(manifest.split(SPLIT).examples / batch_size)
    rounds = math.ceil(count / replicas)
    start = min(replica * rounds, count - rounds)
    stop = (start + rounds) * batch_size
    read = records.batches(
        manifest, data_dir, SPLIT, batch_size, start=start * batch_size, stop=stop
    )
    for position, columns in enumerate(read, start):
        yield columns, position // rounds == replica


@functools.cache
def _study() -> Any:
    import hypertune  # Google's, which knows the form of the file

    return hypertune.HyperTune()


def has_evaluator() -> bool:
    """Returns whether the launcher started one; it stands in no TF_CONFIG of the others."""
    return "evaluator" in os.environ.get(POOL_ROLES, "").split(",")


def follow(opts: Options, manifest: Manifest, journal: Journal, stop: Stop) -> int:
    """Scores checkpoints, the newest first, until the last step's is scored. Returns the exit code."""
    if not manifest.splits[SPLIT].examples:
        print(f"dataset {manifest.name!r} has no {SPLIT} split, so there is nothing to evaluate")
        return 0
    with stop.at_once():  # what is interrupted is scored again
        build = opts.builder(manifest)
        model = build()
        state = State(
            model, learning.optimizer(opts, model, manifest)
        )  # which gives its slots places in a checkpoint
        checkpoints = Checkpoints(opts.job_dir, state)
        scores = Scores(opts.job_dir, build.task)
        validator = Validator(opts, build, manifest, scores, journal, tf.distribute.get_strategy())
        scored = scores.latest_step
        journal.event("start", scored)
        while True:
            journal.status("waiting", scored)
            if newest := checkpoints.load_newest(after=scored):
                validator.evaluate(state, interrupted=lambda: False)
                scored = newest
            elif (record := done.load(opts.job_dir)) and opts.is_met_by(record):
                return 0
            else:
                _pause(opts.job_dir)


def await_evaluator(opts: Options, scores: Scores, step: int, journal: Journal) -> None:
    """Waits until the evaluator has scored the last checkpoint: on Vertex AI the job ends with the chief."""
    deadline = time.monotonic() + _TIMEOUT_S
    while scores.latest_step < step:
        if time.monotonic() > deadline:
            print(
                f"the evaluator has not scored step {step} within {_TIMEOUT_S:.0f} s; going on "
                "without"
            )
            return
        journal.status("waiting", step)
        _pause(opts.job_dir)


def _pause(job_dir: str) -> None:
    time.sleep(_POLL_IN_STORE_S if is_remote(job_dir) else _POLL_S)
