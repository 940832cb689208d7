"""Evaluations that take long."""

import time

import pytest

from components.train.supervision.health import Vitals

pytestmark = pytest.mark.cluster


def test_evaluation_shows_signs_of_life(job):
    flags = "--model own_models:slow --eval-batch-size 8 --train-steps 20 --eval-every-steps 10"
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
