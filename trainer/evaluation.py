"""Evaluation on the validation split, by the replicas that train or by one of its own, and what is remembered of it.

`validation.json` in the job directory holds the latest and the best evaluation (`step` and the task's score), and the
steps of those since the best, none of them better; `best/ckpt-<step>` holds the whole state of the best. A value that is
not finite is null there. A score whose loss or ranking metric is not finite is never the best, and does not count against
`--patience`. Selection is never on the test split.
"""

import functools
import json
import math
import os
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from common.documents import plain
from common.errors import reading, store_errors
from common.manifest import Manifest
from common.storage.files import parsed_json, write_text
from trainer.job.checkpoints import remove
from trainer.job.journal import Journal
from trainer.job.state import State
from trainer.models.registry import Builder
from trainer.scoring import Scorer
from trainer.tasks.task import Task

SPLIT = "validation"
FILE = "validation.json"
# By which Vertex AI (`HyperparameterTuningJob`), and AI Platform before it, have a trial of a study write its metrics.
_STUDY = "CLOUD_ML_HP_METRIC_FILE"


class Scores:
    """The evaluations of the job in `job_dir`."""

    def __init__(self, job_dir: str, task: Task) -> None:
        self.job_dir, self._path, self._task = job_dir, os.path.join(job_dir, FILE), task

    def load(self) -> dict[str, dict[str, Any]]:
        """Returns `latest` and, once a score was finite, `best`; nothing before the first evaluation."""
        with parsed_json(self._path) as scores:
            scores = {which: (scores or {}).get(which) for which in ("latest", "best")}
            return {which: {**score, "step": int(score["step"])} for which, score in scores.items() if score}

    def without_better(self, step: int) -> int:
        """Returns the number of evaluations up to a step since the best one. Later ones are yet to be made again."""
        return sum(scored <= step for scored in self._since_best())

    def _since_best(self) -> list[int]:
        with parsed_json(self._path) as scores:
            return list(map(int, (scores or {}).get("since_best", [])))

    def is_exhausted(self, step: int, patience: int) -> bool:
        """Returns whether the score has not risen for as many evaluations as there is patience for."""
        enough = self.without_better(step) >= patience
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
        since = [] if better else [s for s in self._since_best() if s < step]
        if is_finite and not better and step > best["step"]:
            since.append(step)
        if better:
            with store_errors():
                state.checkpoint.write(self._best(step))
        write_text(
            self._path,
            json.dumps({"latest": latest, "best": latest if better else best, "since_best": since}, indent=1) + "\n",
        )
        if better and best and best["step"] != step:
            remove(self._best(best["step"]))
        return better

    def restore_best(self, state: State) -> int:
        """Reads the best state into `state`. Returns its step."""
        best = self._best(self.load()["best"]["step"])
        with reading(best, "the same command with --export last exports the last state"), store_errors():
            state.checkpoint.read(best).assert_consumed()
        return state.step

    def _best(self, step: int) -> str:
        return os.path.join(self.job_dir, "best", f"ckpt-{step}")


class Validator:
    """Scores states on the validation split, and reports the scores."""

    def __init__(
        self,
        build: Builder,
        manifest: Manifest,
        scores: Scores,
        journal: Journal,
        *,
        data_dir: str,
        batch_size: int,
        together: tf.distribute.Strategy | None = None,
        reports: bool = True,
    ) -> None:
        """Takes the strategy of replicas that evaluate `together`, and whether it is this one that `reports` the score."""
        self._scores, self._journal, self._reports = scores, journal, reports
        together = together or tf.distribute.get_strategy()
        self._scorer = Scorer(build, manifest, data_dir, SPLIT, batch_size=batch_size, together=together)
        self._writer: tf.summary.SummaryWriter | None = None

    def evaluate(self, state: State, interrupted: Callable[[], bool]) -> bool:
        """Scores the copies of `state` and reports it everywhere. All who evaluate together call it with the same state.

        Returns False when `interrupted` has said on any of them to leave it.
        """
        step, start = state.step, time.perf_counter()
        self._journal.status("evaluating", step)

        def leave() -> bool:
            self._journal.alive()
            return interrupted()

        score = self._scorer.score(state.weights(), leave)
        if score is None or not self._reports:
            return score is not None
        self._writer = self._writer or tf.summary.create_file_writer(self._journal.path("logs", SPLIT))
        with self._writer.as_default(step=step):
            for name, value in score.items():
                tf.summary.scalar(name, value)
        self._writer.flush()
        best = self._scores.add(step, score, state)
        if _STUDY in os.environ:
            for name, value in score.items():
                _study().report_hyperparameter_tuning_metric(name, value, step)
        self._journal.event("evaluation", step, **score, best=best, seconds=round(time.perf_counter() - start, 3))
        values = "  ".join(f"{name} {value:.4f}" for name, value in score.items())
        print(f"step {step}  validation {values}")
        return True


@functools.cache
def _study() -> Any:
    import hypertune  # Google's, which knows the form of the file

    return hypertune.HyperTune()
