"""The evaluator: a replica beside the training cluster that scores every checkpoint on the validation split."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import tensorflow as tf

from trainer import done, learning, models, records
from trainer.checkpoint import Checkpoints
from trainer.cluster import POOL_ROLES
from trainer.journal import Journal
from trainer.manifest import Manifest
from trainer.options import Options
from trainer.state import State
from trainer.stop import EXIT_CODE, Stop
from trainer.validation import SPLIT, Scores, Validator

_POLL_S = 0.5


def has_evaluator() -> bool:
    """Whether the launcher started one; it stands in no TF_CONFIG of the others."""
    return "evaluator" in os.environ.get(POOL_ROLES, "").split(",")


def follow(opts: Options, manifest: Manifest, journal: Journal, stop: Stop) -> int:
    """Scores checkpoints, the newest first, until the last step's is scored. Returns the exit code."""
    records.verify(manifest, opts.data_dir, SPLIT)
    build = models.builder(opts, manifest)
    # The optimizer only gives its slots their places in a checkpoint; at what rate it would learn does not matter.
    model, optimizer = build(), learning.optimizer(opts, examples=1, examples_per_step=1, horizon_steps=1)
    optimizer.build(model.trainable_variables)
    state = State(model, optimizer)
    checkpoints, scores = Checkpoints(opts.job_dir, state, keep=opts.keep_checkpoints), Scores(opts.job_dir)
    validator = Validator(build, manifest, opts.data_dir, opts.eval_batch_size)
    scored = scores.latest_step
    journal.event("start", scored)
    while not stop.requested:
        journal.status("waiting", scored)
        newest = max(checkpoints.steps(), default=0)
        if newest <= scored:
            if (record := done.load(opts.job_dir)) and record.step <= scored:
                break
            time.sleep(_POLL_S)
            continue
        try:
            checkpoints.load(newest)
        except tf.errors.OpError:  # deleted while it was read: there is a newer one
            continue
        journal.status("evaluating", newest)
        score = validator.score(state.weights(), lambda: stop.requested)
        if score is None:
            break
        best = scores.add(newest, score, state)
        journal.event("evaluation", newest, **score, best=best)
        print(f"step {newest}  validation loss {score['loss']:.4f}  accuracy {score['accuracy']:.4f}", flush=True)
        scored = newest
    journal.flush()
    return EXIT_CODE if stop.requested else 0


def await_evaluator(scores: Scores, step: int, timeout_s: float, interrupted: Callable[[], bool]) -> None:
    """Waits until the evaluator has scored the last checkpoint: on Vertex AI the job ends with the chief."""
    deadline = time.monotonic() + timeout_s
    while scores.latest_step < step and not interrupted():
        if time.monotonic() > deadline:
            print(f"the evaluator has not scored step {step} within {timeout_s:.0f} s; going on without", flush=True)
            return
        time.sleep(_POLL_S)
