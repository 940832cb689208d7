"""Evaluation on the validation split, by the replicas that train or by a replica of its own.

`validation.json` in the job directory holds the latest and the best evaluation (`step` and the
task's score), and the steps of the evaluations since the best one, none of which was better.
`best/ckpt-<step>` holds the whole state of the best one. A value that is not finite is null in the
file. A score whose loss or ranking metric is not finite is never the best, and does not count
against `--patience`. The test split is never used to select a model.

Replicas that evaluate together each score a part of the split. The score does not depend on their
number: the batches are those of one replica, and the states of batches are added exactly.
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
# Vertex AI (`HyperparameterTuningJob`), like AI Platform before it, sets this variable to the file
# in which a trial of a study writes its metrics.
_STUDY = "CLOUD_ML_HP_METRIC_FILE"
_POLL_S, _POLL_IN_STORE_S = 0.5, 5.0
_TIMEOUT_S = 600.0  # Time that the chief waits at the end for the evaluator's last score.


class Scores:
    """Evaluations of a job: `validation.json` and the best state, `best/`, in its directory."""

    def __init__(self, job_dir: str, task: Task) -> None:
        self._job_dir, self._path, self._task = (
            job_dir,
            os.path.join(job_dir, "validation.json"),
            task,
        )

    def load(self) -> dict[str, dict[str, Any]]:
        """Returns the evaluations `latest` and `best`, each with `step` and the score's values.

        A value that is not finite is None. `best` is missing until a score is finite; both are
        missing before the first evaluation.

        Raises:
          UserError: If `validation.json` in the job directory cannot be used.
          ConnectionError: If a store does not answer.
        """
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
        """Returns whether `patience` or more evaluations since the best one were no better.

        Evaluations after `step` do not count, since a resumed job makes them again, nor do those
        whose loss or ranking metric is not finite. Prints a line if true.

        Raises:
          UserError: If `validation.json` in the job directory cannot be used.
          ConnectionError: If a store does not answer.
        """
        enough = sum(scored <= step for scored in self._since_best()) >= patience
        if enough:
            print(f"step {step}  no better score in {patience} evaluations; training ends early")
        return enough

    @property
    def latest_step(self) -> int:
        """Step that was scored last, or 0; raises the same errors as `load`."""
        return self.load().get("latest", {}).get("step", 0)

    def add(self, step: int, score: dict[str, float], state: State) -> bool:
        """Records a score in `validation.json`, and saves the state if the score is the best yet.

        The state is saved as `best/ckpt-<step>`, and the one that was the best before is deleted
        then. An equal score, or one whose loss or ranking metric is not finite, is not the best.

        Args:
          step: Global step of the state.
          score: Values of the loss and of the metrics, by name.
          state: State whose copies were scored.

        Returns:
          True if the score is the best yet.

        Raises:
          UserError: If `validation.json` in the job directory cannot be used, or a store refuses to
            take it.
          OSError: If a file cannot be written, or a store does not answer.
        """
        latest = {"step": step, **plain(score)}
        best = self.load().get("best")
        rank = self._task.rank(score)
        is_finite = all(map(math.isfinite, rank))
        better = is_finite and (best is None or rank > self._task.rank(best))
        # An earlier attempt may have scored this and later steps; they must not count twice.
        since_best = [scored for scored in self._since_best() if scored < step]
        if better:
            since_best = []
            with store_errors():
                state.checkpoint.write(self._best(step))
        elif is_finite and best and step > best["step"]:
            since_best.append(step)
        record = {"latest": latest, "best": latest if better else best, "since_best": since_best}
        write_text(self._path, json.dumps(record, indent=1) + "\n")
        if better and best and best["step"] != step:
            remove(self._best(best["step"]))
        return better

    def restore_best(self, state: State) -> int:
        """Reads the best state into the copies of `state`, and returns its step.

        There must be a best evaluation.

        Raises:
          UserError: If `validation.json` or the files of that state cannot be used.
          ConnectionError: If a store does not answer.
        """
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
    """Scores states on the validation split, and reports the scores.

    Each process has a model of its own for it.
    """

    opts: Options
    build: Builder
    manifest: Manifest
    scores: Scores
    journal: Journal
    strategy: tf.distribute.Strategy  # Strategy of the replicas that evaluate together.
    reports: bool = True  # Whether this replica reports the scores.

    @functools.cached_property
    def _model(self) -> keras.Model:
        # Built only when it is needed, so that the start of training does not wait for it.
        with self.strategy.scope():
            return self.build()

    @functools.cached_property
    def _writer(self) -> tf.summary.SummaryWriter:
        return tf.summary.create_file_writer(self.journal.path("logs", SPLIT))

    def evaluate(self, state: State, interrupted: Callable[[], bool]) -> bool:
        """Scores the copies of `state`, and reports the score if this replica reports.

        The score goes to `scores`, which saves the state if it is the best, to the journal,
        TensorBoard and a printed line and, in a trial of Vertex AI, to the file of its study. All
        replicas that evaluate together must call this with the same state.

        Args:
          state: State whose copies are scored.
          interrupted: Returns True if this replica has no time to go on.

        Returns:
          False if it was interrupted on any replica, so that there is no score.

        Raises:
          UserError: If the split is empty, a file of it is missing or damaged, or the job's scores
            cannot be used.
          OSError: If a file cannot be written, or a store does not answer.
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
        """Returns the loss and the metrics, by name, of a model with these weights.

        All replicas that evaluate together must call it with the same weights.

        Args:
          values: Weights by name.
          interrupted: Called before every batch; returns True if this replica has no time to go on.

        Returns:
          `loss`, the mean over the examples with what the model's layers add to it, and the values
          of the task's metrics; or None if it was interrupted on any replica.

        Raises:
          UserError: If the split is empty, or one of its files is missing or damaged.
          ConnectionError: If a store does not answer when files are compared with the manifest.
          ValueError: If the names are not those of the model's weights.
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
        """Returns the result of `_sums` on each replica, one below the other: [replicas, values].

        Args:
          *batch: The arguments of `_sums`, with a value for each replica.
        """
        return self.strategy.gather(self.strategy.run(self._sums, args=batch), axis=0)

    def _sums(self, batch: Columns, counts: tf.Tensor, wish: tf.Tensor) -> tf.Tensor:
        """Returns the wish to stop, the loss and the states of the metrics, [1, values].

        The loss is the sum over the examples, to which what the layers add is multiplied by the
        number of examples. Loss and states are 0 for a batch that does not count.

        Args:
          batch: Inputs of the model and the label, [N, ...] by name.
          counts: Whether the batch counts, a bool scalar.
          wish: 1 if this replica has no time to go on, else 0: float32 [1].
        """
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
    """Yields the validation batches of one replica, each with whether it counts.

    The batches of all replicas together are those of the whole split, in its order; only its last
    batch may be smaller. All replicas get equally many, since they agree before each whether to go
    on; so a replica with a shorter part also gets batches of its neighbours, which do not count.

    Args:
      manifest: Manifest of the dataset.
      data_dir: Its directory.
      batch_size: Number of examples in a batch.
      replica: Number of the replica, from 0.
      replicas: Number of replicas.

    Raises:
      UserError: If the validation split is empty, or one of its files is missing or damaged.
      ConnectionError: If a store does not answer when files are compared with the manifest.
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
    import hypertune  # Google's package, which knows the format of the file.

    return hypertune.HyperTune()


def has_evaluator() -> bool:
    """Returns whether the launcher has started an evaluator.

    The environment variable `TRAINER_POOL_ROLES` says so, the list of the roles in the cluster.
    """
    return "evaluator" in os.environ.get(POOL_ROLES, "").split(",")


def follow(opts: Options, manifest: Manifest, journal: Journal, stop: Stop) -> int:
    """Runs an evaluator until the job is done and its last checkpoint is scored.

    The job is done when its `DONE.json` has steps or epochs that meet the options. Each time the
    evaluator scores the newest readable checkpoint after the last one scored, so some may be left
    out. A SIGTERM ends the process at once, with `saved_code()`.

    Args:
      opts: Options of the job.
      manifest: Manifest of the dataset. If it has no validation examples, this returns at once.
      journal: Journal of this replica.
      stop: Stop request of this process.

    Returns:
      The exit code, 0.

    Raises:
      UserError: If the model or a file of the job or of the validation split cannot be used.
      OSError: If a file cannot be written, or a store does not answer.
    """
    if not manifest.splits[SPLIT].examples:
        print(f"dataset {manifest.name!r} has no {SPLIT} split, so there is nothing to evaluate")
        return 0
    with stop.at_once():  # Nothing is lost: an interrupted evaluation is made again.
        build = opts.builder(manifest)
        model = build()
        # Checkpoints contain the optimizer's slots, so reading one needs an optimizer too.
        state = State(model, learning.optimizer(opts, model, manifest))
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
    """Waits until the evaluator has scored `step`, the last one, for at most 10 minutes.

    After that it prints a line and returns. On Vertex AI the job ends with the chief, so the chief
    must not leave earlier.

    Raises:
      UserError: If `validation.json` in the job directory cannot be used.
      ConnectionError: If a store does not answer.
    """
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
