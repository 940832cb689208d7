"""The replica that scores checkpoints beside training, and the chief's waiting for it."""

import os
import time

from common.manifest import Manifest
from common.storage.storage import is_remote
from trainer import learning
from trainer.cluster.member import POOL_ROLES
from trainer.cluster.shutdown import Stop
from trainer.evaluation import SPLIT, Scores, Validator
from trainer.job import done
from trainer.job.checkpoints import Checkpoints
from trainer.job.journal import Journal
from trainer.job.state import State
from trainer.options import Options

_POLL_S, _POLL_IN_STORE_S = 0.5, 10.0
_TIMEOUT_S = 600.0  # that the chief waits at the end for the last score
_AWAIT_IN_STORE_S = 5.0  # of the chief, whose machines have nothing else left to do


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
        state = State(model, learning.optimizer(opts, model, manifest))  # which gives its slots places in a checkpoint
        checkpoints = Checkpoints(opts.job_dir, state)
        scores = Scores(opts.job_dir, build.task)
        validator = Validator(
            build,
            manifest,
            scores,
            journal,
            data_dir=opts.data_dir,
            batch_size=opts.eval_batch_size,
        )
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
                time.sleep(_POLL_IN_STORE_S if is_remote(opts.job_dir) else _POLL_S)


def await_evaluator(scores: Scores, step: int, journal: Journal) -> None:
    """Waits until the evaluator has scored the last checkpoint: on Vertex AI the job ends with the chief."""
    deadline = time.monotonic() + _TIMEOUT_S
    every_s = _AWAIT_IN_STORE_S if is_remote(scores.job_dir) else _POLL_S
    while scores.latest_step < step:
        if time.monotonic() > deadline:
            print(f"the evaluator has not scored step {step} within {_TIMEOUT_S:.0f} s; going on without")
            return
        journal.status("waiting", step)
        time.sleep(every_s)
