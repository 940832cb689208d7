"""Evaluation on the validation split: of one state, and as a replica that scores every checkpoint beside training."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from trainer import learning
from trainer.base.manifest import Manifest
from trainer.job_dir import done
from trainer.job_dir.checkpoint import Checkpoints
from trainer.job_dir.journal import Journal
from trainer.job_dir.state import State
from trainer.nn.models import registry
from trainer.options import Options
from trainer.replicas.member import POOL_ROLES
from trainer.replicas.stop import EXIT_CODE, Stop
from trainer.validation import SPLIT, Scores, Validator

_POLL_S = 0.5


def has_evaluator() -> bool:
    """Whether the launcher started one; it stands in no TF_CONFIG of the others."""
    return "evaluator" in os.environ.get(POOL_ROLES, "").split(",")


def evaluate(
    step: int,
    state: State,
    *,
    validator: Validator,
    scores: Scores,
    journal: Journal,
    interrupted: Callable[[], bool],
) -> bool:
    """Scores the copies of `state` and tells it everywhere. Returns False when `interrupted` said to leave it."""

    def looked_at() -> bool:
        journal.alive()
        return interrupted()

    journal.status("evaluating", step)
    start = time.perf_counter()
    score = validator.score(state.weights(), looked_at)
    if score is None:
        return False
    best = scores.add(step, score, state)
    journal.event("evaluation", step, **score, best=best, seconds=round(time.perf_counter() - start, 3))
    values = "  ".join(f"{name} {value:.4f}" for name, value in score.items())
    print(f"step {step}  validation {values}", flush=True)
    return True


def follow(opts: Options, manifest: Manifest, journal: Journal, stop: Stop) -> int:
    """Scores checkpoints, the newest first, until the last step's is scored. Returns the exit code."""
    if not manifest.splits[SPLIT].examples:
        print(f"dataset {manifest.name!r} has no {SPLIT} split, so there is nothing to evaluate", flush=True)
        return 0
    with stop.at_once():
        build = registry.builder(opts.model, manifest, opts.network)
        # The optimizer only gives its slots their places in a checkpoint; at what rate it would learn does not matter.
        model, optimizer = build(), learning.optimizer(opts, examples=1, examples_per_step=1, horizon_steps=1)
        optimizer.build(model.trainable_variables)
        state = State(model, optimizer)
        checkpoints, scores = Checkpoints(opts, state, writes=False), Scores(opts.job_dir)
        validator = Validator(build, manifest, opts.data_dir, opts.eval_batch_size)
    scored = scores.latest_step
    journal.event("start", scored)
    while not stop.requested:
        journal.status("waiting", scored)
        newest = checkpoints.load_newest(after=scored)
        if not newest:
            if (record := done.load(opts.job_dir)) and record.covers(opts.train_steps, opts.train_epochs):
                break
            time.sleep(_POLL_S)
            continue
        means = {"validator": validator, "scores": scores, "journal": journal}
        if evaluate(newest, state, **means, interrupted=lambda: stop.requested):
            scored = newest
    journal.flush()
    return EXIT_CODE if stop.requested else 0


def await_evaluator(scores: Scores, step: int, journal: Journal, timeout_s: float) -> None:
    """Waits until the evaluator has scored the last checkpoint: on Vertex AI the job ends with the chief."""
    deadline = time.monotonic() + timeout_s
    while scores.latest_step < step:
        if time.monotonic() > deadline:
            print(f"the evaluator has not scored step {step} within {timeout_s:.0f} s; going on without", flush=True)
            return
        journal.status("waiting", step)
        time.sleep(_POLL_S)
