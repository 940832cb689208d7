"""The replica that scores checkpoints beside training: real processes."""

import time

import numbered
import pytest

from components.train.supervision.health import Vitals

pytestmark = pytest.mark.cluster
FLAGS = ["--checkpoint-num-steps", 10, "--batch-size", 16]


def test_evaluation_shows_signs_of_life(job):
    flags = [
        "--model",
        "own_models:slow",
        "--train-steps",
        20,
        "--eval-every-steps",
        10,
        "--eval-batch-size",
        8,
    ]
    job.start("chief", "worker", flags=flags)
    names = ("chief-0", "worker-0")
    vitals = {name: Vitals(str(job.directory / f"{name}.status")) for name in names}
    signs = {name: set() for name in names}

    def has_ended() -> bool:
        for name, one in vitals.items():
            one.read(time.monotonic())
            if one.phase == "evaluating":
                signs[name].add(one.changed)
        return (job.directory / "DONE.json").exists()

    job.until(has_ended)
    assert job.wait() == {"chief-0": 0, "worker-0": 0}
    assert (
        min(map(len, signs.values())) >= 6
    )  # two evaluations, each as long as several signs are apart
    evaluations = [e for e in job.events() if e["event"] == "evaluation"]
    assert [e["step"] for e in evaluations] == [10, 20]


@pytest.mark.parametrize("phase", ["evaluating", pytest.param("exporting", marks=pytest.mark.slow)])
def test_a_chief_that_is_told_to_stop_when_training_is_over_takes_the_others_along(job, phase):
    flags = ["--model", "own_models:slow", "--train-steps", 10, "--eval-batch-size", 16]
    job.start("chief", "worker", "worker", flags=flags)
    job.until(lambda: job.status()["phase"] == phase)
    job.terminate("chief-0")
    assert job.wait() == dict.fromkeys(("chief-0", "worker-0", "worker-1"), 143), job.output()
    job.run("chief", "worker", "worker", flags=flags)


def test_without_a_validation_split_the_evaluator_leaves_and_nobody_waits_for_it(job, tmp_path):
    numbered.dataset(tmp_path / "numbered", 64, classes=2)
    job.data = tmp_path / "numbered"
    started = time.monotonic()
    flags = ["--model", "numbered:network", "--train-steps", 4]
    assert "nothing to evaluate" in job.run("chief", "worker", "evaluator", flags=flags)
    assert time.monotonic() - started < 100  # the chief would wait for 300 s
