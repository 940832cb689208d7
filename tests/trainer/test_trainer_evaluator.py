"""The replica that scores checkpoints beside training, and evaluations that take long."""

import time

import numbered
import pytest

from components.train.supervision.health import Vitals

pytestmark = pytest.mark.cluster
SLOW = "--model own_models:slow --eval-batch-size"


def test_evaluation_shows_signs_of_life(job):
    flags = f"{SLOW} 8 --train-steps 20 --eval-every-steps 10"
    job.start("chief", "worker", flags=flags)
    names = ("chief-0", "worker-0")
    vitals = {name: Vitals(str(job.directory / f"{name}.status")) for name in names}
    signs = {name: set() for name in names}

    def has_ended():
        for name, one in vitals.items():
            one.read(time.monotonic())
            if one.phase == "evaluating":
                signs[name].add(one.changed)
        return (job.directory / "DONE.json").exists()

    job.until(has_ended)
    # Of two evaluations, each as long as several signs are apart.
    assert min(map(len, signs.values())) >= 6
    assert job.steps("evaluation") == [10, 20]


def test_evaluator_without_split_leaves(job, tmp_path):
    numbered.dataset(tmp_path / "numbered", 64, classes=2)
    job.data = tmp_path / "numbered"
    started = time.monotonic()
    flags = "--model numbered:network --train-steps 4"
    assert "nothing to evaluate" in job.run("chief", "worker", "evaluator", flags=flags)
    assert time.monotonic() - started < 100  # the chief would wait for 300 s
