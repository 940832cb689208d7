"""Training that ends early: on every kind of cluster at one step, and for good. Real processes."""

import dataclasses
import json
import math
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trainer_jobs import CLUSTERS

from common.errors import UserError
from common.manifest import Manifest
from trainer import options
from trainer.evaluation import Scores
from trainer.job.done import Done
from trainer.tasks.of_dataset import Classification

SLOW = pytest.mark.slow
# At such a rate no score changes: the first evaluation is the best.
STILL = [
    "--model",
    "own_models:sequential",
    "--optimizer",
    "sgd",
    "--learning-rate",
    1e-9,
    "--batch-size",
    16,
]


class Unwritten:
    """In place of a state whose files nobody reads."""

    checkpoint = property(lambda self: self)

    def write(self, path: str) -> None:
        pass


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@settings(max_examples=settings.default.max_examples // 2)
@given(
    st.lists(st.sampled_from([0, 1, 2, math.nan, math.inf]), min_size=1, max_size=8),
    st.booleans(),
    st.data(),
)
def test_scores_without_a_better_one(tmp_path_factory, ranks, of_loss, data):
    """The best score and the count since are those of the finite scores, as if no attempt had got further."""
    job_dir = tmp_path_factory.mktemp("job")
    scores = Scores(str(job_dir), Classification(("a", "b", "c")))
    reached = 0
    while reached < len(ranks):
        score = {"loss": 1.0, "accuracy": 0.5} | (
            {"loss": -ranks[reached]} if of_loss else {"accuracy": ranks[reached]}
        )
        scores.add(reached + 1, score, Unwritten())
        reached += 1
        finite = [i for i in range(reached) if math.isfinite(ranks[i])]
        best = max(finite, key=lambda i: ranks[i], default=-1)
        content = json.loads(
            (job_dir / "validation.json").read_text(), parse_constant=refuse_constant
        )
        assert (content["best"] or {"step": 0})["step"] == best + 1
        undone = max(best + 1, data.draw(st.integers(best + 1, reached)))
        for step in (reached, undone):
            since_best = sum(best < i < step for i in finite)
            assert scores.is_exhausted(step, since_best) and not scores.is_exhausted(
                step, since_best + 1
            )
        if data.draw(st.integers(0, 3)) == 0 and undone < reached:
            reached = undone


def test_a_job_that_ended_early_is_done_for_those_who_are_not_more_patient():
    facts = {"loss": 0.1, "metrics": {}, "validation": {}, "seconds": 1.0, "examples_per_s": 1.0}
    early = Done(step=30, epochs=1.5, stopped_early=2, **facts)

    def goal(*flags: str) -> options.Options:
        return options.parse(
            ["--data-dir", "d", "--job-dir", "j", "--eval-every-steps", "1", *flags], {}
        )

    for met in (
        ["--train-steps=1000", "--patience=2"],
        ["--train-epochs=9", "--patience=1"],
        ["--train-steps=30"],
    ):
        assert goal(*met).is_met_by(early)
    for not_met in (["--train-steps=1000", "--patience=3"], ["--train-epochs=9"]):
        assert not goal(*not_met).is_met_by(early)
    assert not goal("--train-steps=1000", "--patience=2").is_met_by(
        Done(step=30, epochs=1.5, **facts)
    )


def test_patience_without_evaluations_is_refused(digits):
    needed = ["--data-dir", str(digits), "--job-dir", "j", "--train-steps", "9", "--patience", "2"]
    with pytest.raises(
        UserError, match="--patience 2 counts evaluations; give --eval-every-steps too"
    ):
        options.parse(needed, {})
    manifest = Manifest.load(digits)
    manifest.splits["validation"] = dataclasses.replace(manifest.splits["validation"], examples=0)
    with pytest.raises(
        UserError, match="--patience 2: dataset 'digits' has no validation split to judge by"
    ):
        options.parse([*needed, "--eval-every-steps", "3"], {}).on(manifest)


@pytest.mark.cluster
@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=[] if how == "two_workers" else SLOW) for how in CLUSTERS]
)
def test_all_replicas_end_at_the_evaluation_that_exhausts_patience_and_the_job_is_done(job, how):
    flags = [*STILL, "--eval-every-steps", 10, "--train-steps"]

    def run(*more: object) -> str:
        before = len(job.output())
        output = job.run(*CLUSTERS[how][0], flags=[*flags, *more])
        return output[before:] if how == "one_device" else output

    def record() -> dict:
        return json.loads((job.directory / "DONE.json").read_text())

    assert "step 30  no better score in 2 evaluations; training ends early" in run(
        1000, "--patience", 2
    )
    assert (record()["step"], record()["stopped_early"]) == (30, 2)
    assert [e["step"] for e in job.events() if e["event"] == "evaluation"] == [10, 20, 30]
    assert job.checkpoints()[-1] == 30 and (job.directory / "model" / "saved_model.pb").exists()
    assert "already done at step 30" in run(2000, "--patience", 2)
    # As a job that was killed before it had exported.
    (job.directory / "DONE.json").unlink()
    shutil.rmtree(job.directory / "model")
    run(1000, "--patience", 2)
    assert (record()["step"], record()["stopped_early"]) == (30, 2)
    assert not [e for e in job.events() if e["event"] in ("step", "evaluation")]
    # Whoever is more patient goes on.
    run(1000, "--patience", 3)
    assert (record()["step"], record()["stopped_early"]) == (40, 3)
    run(45)
    assert (record()["step"], record()["stopped_early"]) == (45, None)


@pytest.mark.cluster
def test_patience_beside_an_evaluator_is_refused_by_both(job):
    job.start(
        "chief",
        "evaluator",
        flags=[*STILL, "--eval-every-steps", 10, "--patience", 2, "--train-steps", 99],
    )
    assert job.wait() == {"chief-0": 2, "evaluator-0": 2}
    assert job.output().count("and this cluster has an evaluator; leave out one") == 2
