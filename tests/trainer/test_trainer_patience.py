"""Training that ends early: on every kind of cluster at one step, and for good. Real processes."""

import dataclasses
import json
import math
import shutil
from unittest import mock

import pytest
from parsed import options
from trainer_jobs import CLUSTERS

from tests.errors import user_error
from trainer.evaluation import Scores
from trainer.tasks.of_dataset import Classification

# At such a rate no score changes: the first evaluation is the best.
STILL = "--model own_models:sequential --optimizer sgd --learning-rate 1e-9 --batch-size 16"
STILL += " --eval-every-steps 10"


def test_best_score_is_finite(tmp_path):
    """An attempt that resumes behind the best score finds it."""
    ranks = [1, math.nan, 2, 2, math.inf, 1]
    for first in (0, 3):
        scores = Scores(str(tmp_path), Classification(("a", "b", "c")))
        for step, rank in enumerate(ranks[first:], first + 1):
            scores.add(step, {"loss": -rank, "accuracy": 0.5}, mock.Mock())
    content = (tmp_path / "validation.json").read_text()
    assert "NaN" not in content and "Infinity" not in content
    assert json.loads(content)["best"]["step"] == 3
    assert scores.is_exhausted(6, 2) and not scores.is_exhausted(6, 3)
    assert scores.is_exhausted(4, 1) and not scores.is_exhausted(4, 2)


def test_patience_without_evaluations_is_refused(images):
    with user_error("--patience 2 counts evaluations; give --eval-every-steps"):
        options("--patience 2")
    empty = dataclasses.replace(images.splits["validation"], examples=0)
    manifest = dataclasses.replace(images, splits={**images.splits, "validation": empty})
    for flags, judging in (
        ("--patience 2 --eval-every-steps 3", "--patience 2"),
        ("--export best", "--export best"),
    ):
        with user_error(f"{judging}: dataset 'digits' has no validation split"):
            options(flags).on(manifest)


@pytest.mark.cluster
@pytest.mark.parametrize(
    "how",
    [pytest.param(how, marks=[] if how == "two_workers" else pytest.mark.slow) for how in CLUSTERS],
)
def test_exhausted_patience_ends_job(job, how):
    """All replicas end at that evaluation, and the job is done for whoever is not more patient."""
    roles, more = CLUSTERS[how]

    def run(steps, patience):
        """Runs the job; the step that it was done at, and by which patience."""
        flags = f"{STILL} {more} --train-steps {steps}"
        job.run(*roles, flags=f"{flags} --patience {patience}" if patience else flags)
        record = job.read("DONE.json")
        return record["step"], record["stopped_early"]

    assert run(1000, 2) == (30, 2)
    assert "step 30  no better score in 2 evaluations; training ends early" in job.output()
    assert job.steps("evaluation") == [10, 20, 30]
    assert job.checkpoints()[-1] == 30
    run(2000, 2)
    assert "already done at step 30" in job.output()
    # As a job that was killed before it had exported.
    (job.directory / "DONE.json").unlink()
    shutil.rmtree(job.directory / "model")
    assert run(1000, 2) == (30, 2)
    assert not job.events("step") and not job.events("evaluation")
    # Whoever is more patient goes on.
    assert run(1000, 3) == (40, 3)
    assert run(45, None) == (45, None)


@pytest.mark.cluster
def test_patience_beside_evaluator_is_refused(job):
    job.start("chief", "evaluator", flags=f"{STILL} --patience 2 --train-steps 99")
    assert job.wait() == {"chief-0": 2, "evaluator-0": 2}
    assert job.output().count("and this cluster has an evaluator; leave out one") == 2
