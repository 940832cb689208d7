"""The replica that scores checkpoints beside training: real processes."""

import time

import numbered
import pytest

from components.train.supervision.health import Patience, Vitals

pytestmark = pytest.mark.cluster
FLAGS = ["--checkpoint-num-steps", 10, "--batch-size", 16]


def test_all_replicas_show_signs_of_life_through_an_evaluation_longer_than_any_may_be_silent(job):
    limits = Patience(silence_s=dict.fromkeys(("evaluating", "waiting", "training"), 8.0))
    flags = ["--model", "own_models:slow", "--train-steps", 20, "--eval-every-steps", 10, "--eval-batch-size", 8]
    job.start("chief", "worker", flags=flags)
    silences, started = set(), time.monotonic()
    names = ("chief-0", "worker-0")
    vitals = {name: Vitals(str(job.directory / f"{name}.status"), job.pid(name), started) for name in names}

    def ended() -> bool:
        for name, one in vitals.items():
            one.read(now := time.monotonic())
            # The first call of the chief compiles.
            if name == "worker-0" or one.phase != "training":
                silences.add(one.frozen(now, limits, reports=True))
        return (job.directory / "DONE.json").exists()

    job.until(ended)
    assert job.wait() == {"chief-0": 0, "worker-0": 0}
    assert silences == {""}
    evaluations = [e for e in job.events() if e["event"] == "evaluation"]
    assert [e["step"] for e in evaluations] == [10, 20]
    assert min(e["seconds"] for e in evaluations) > 10
    for name in vitals:
        used = [e for e in job.events(name) if e["event"] == "usage"]
        assert len(used) > 5 and used[-1]["cpu"] > used[0]["cpu"] and used[0]["memory"] > 50 << 20


@pytest.mark.parametrize("phase", ["evaluating", pytest.param("exporting", marks=pytest.mark.slow)])
def test_a_chief_that_is_told_to_stop_when_training_is_over_takes_the_others_along(job, phase):
    flags = ["--model", "own_models:slow", "--train-steps", 10, "--eval-batch-size", 16]
    job.start("chief", "worker", "worker", flags=flags)
    job.until(lambda: job.status()["phase"] == phase)
    job.terminate("chief-0")
    assert job.wait(10) == dict.fromkeys(("chief-0", "worker-0", "worker-1"), 143), job.output()
    job.run("chief", "worker", "worker", flags=flags)


def test_without_a_validation_split_the_evaluator_leaves_and_nobody_waits_for_it(job, tmp_path):
    numbered.dataset(tmp_path / "numbered", 64, classes=2)
    job.data = tmp_path / "numbered"
    started = time.monotonic()
    flags = ["--model", "numbered:network", "--train-steps", 4]
    assert "nothing to evaluate" in job.run("chief", "worker", "evaluator", flags=flags)
    assert time.monotonic() - started < 100  # the chief would wait for 300 s
