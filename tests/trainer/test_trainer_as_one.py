"""Several replicas learn what one does, and a job that is resumed what one does that never stopped: real jobs."""

import json

import numpy as np
import pytest
from trainer_jobs import CLUSTERS, Job

pytestmark = pytest.mark.cluster
SGD, TABLE = "--optimizer sgd --learning-rate 0.01", "--batch-size 65"
# What is learnt from what by which flags in how many steps, and how near to each other weights come out.
JOBS = {
    "penalised": ("digits", f"--model own_models:penalised --batch-size 33 {SGD}", 40, 1e-5),
    "batch_norm": ("digits", f"--model own_models:batch_norm --batch-size 33 {SGD}", 40, 1e-5),
    # Clipped is the gradient of all replicas together: half the norm would show in every step.
    "clipped": ("digits", f"--model own_models:subclassed --clip-norm 0.05 {SGD}", 40, 1e-5),
    "own optimizer": ("digits", "--model fine_tuned:network --batch-size 32", 30, 1e-5),
    "weighed": ("trips_data", f"{TABLE} --class-weights no=3,yes=0.5", 30, 2e-4),
    "table": ("trips_data", TABLE, 30, 2e-4),
}
OFTEN = {
    ("penalised", "two_workers"),
    ("clipped", "two_workers"),
    ("clipped", "mirrored"),
    ("own optimizer", "mirrored"),
} | {("weighed", how) for how in CLUSTERS}


@pytest.fixture(scope="module")
def alone(request, tmp_path_factory):
    """The job of that name on one device, each run once."""
    jobs: dict[str, Job] = {}

    def run(name: str) -> Job:
        if name not in jobs:
            data, flags, steps, _ = JOBS[name]
            jobs[name] = Job(request.getfixturevalue(data), tmp_path_factory.mktemp("alone") / "job")
            jobs[name].run("chief", flags=[*flags.split(), "--deterministic", "--train-steps", steps])
        return jobs[name]

    return run


def first_loss(job: Job) -> float:
    """That of the initial weights; a penalty for each replica would be seen in it."""
    return next(e["loss"] for e in job.events() if e["event"] == "step")


def score(job: Job) -> float:
    return json.loads((job.directory / "validation.json").read_text())["latest"]["loss"]


@pytest.mark.parametrize(
    ("name", "how"),
    [
        pytest.param(name, how, marks=[] if (name, how) in OFTEN else pytest.mark.slow)
        for name in JOBS
        for how in list(CLUSTERS)[1:]
    ],
)
def test_several_replicas_learn_what_one_does(make, alone, name, how):
    (_, flags, steps, near), (roles, more), one = JOBS[name], CLUSTERS[how], alone(name)
    several = make(data=one.data)
    several.run(*roles, flags=[*flags.split(), *more, "--train-steps", steps])
    found = several.variables(steps)
    for key, value in one.variables(steps).items():
        np.testing.assert_allclose(found[key], value, atol=near, err_msg=key)
    assert first_loss(several) == pytest.approx(first_loss(one), rel=1e-5)
    assert score(several) == pytest.approx(score(one), abs=near)


@pytest.mark.parametrize(("name", "state"), [("own optimizer", 7), ("weighed", None)])
def test_a_job_that_is_resumed_has_the_bits_of_one_that_never_stopped(make, alone, name, state):
    _, flags, steps, _ = JOBS[name]
    resumed = make(data=alone(name).data)
    for until in (steps // 2, steps):
        resumed.run("chief", flags=[*flags.split(), "--deterministic", "--train-steps", until])
    assert resumed.digest(steps) == alone(name).digest(steps)
    # Of the model's own optimizer the count, and a momentum of each weight.
    assert state in (None, sum("optimizer" in key for key in resumed.variables(steps)))


def test_class_weights_change_the_loss(alone):
    assert first_loss(alone("weighed")) != pytest.approx(first_loss(alone("table")), rel=1e-2)
