"""Several replicas learn what one does."""

import numpy as np
import pytest
from trainer_jobs import CLUSTERS

pytestmark = pytest.mark.cluster
SGD = "--optimizer sgd --learning-rate 0.01"
RESNET = "--model resnet --num-layers 8 --batch-size 33 --learning-rate 0.001"
# Dataset, flags, steps, and how far weights may differ.
JOBS = {
    "penalised": ("data", f"--model ten_models:normalised --batch-size 33 {SGD}", 40, 1e-5),
    "resnet": ("digits", RESNET, 10, 1e-4),
    "bfloat16": ("digits", f"{RESNET} --precision bfloat16", 10, 0.02),
    # The norm of one replica's part would show in every step.
    "clipped": ("digits", f"--model own_models:subclassed --clip-norm 0.05 {SGD}", 40, 1e-5),
    "own optimizer": ("digits", "--model fine_tuned:subclassed --batch-size 32", 30, 1e-5),
    "metrics": (
        "data",
        "--model ten_models:masked --batch-size 33 --eval-batch-size 16 --class-weights yes=0.5",
        12,
        1e-4,
    ),
    "weighed": ("data", "--batch-size 65 --class-weights no=3,yes=0.5", 30, 2e-4),
}
OFTEN = {
    ("penalised", "two_workers"),
    ("clipped", "two_workers"),
    ("clipped", "mirrored"),
    ("clipped", "parameter_server"),
    ("own optimizer", "mirrored"),
    ("bfloat16", "two_workers"),
    *((name, how) for name in ("weighed", "resnet", "metrics") for how in CLUSTERS),
}


@pytest.mark.parametrize(
    ("name", "how"),
    [
        pytest.param(name, how, marks=[] if (name, how) in OFTEN else pytest.mark.slow)
        for name in JOBS
        for how in list(CLUSTERS)[1:]
    ],
)
def test_replicas_learn_as_one(make, undisturbed, name, how):
    data, flags, steps, near = JOBS[name]
    one = undisturbed("one_device", f"{flags} --deterministic --train-steps {steps}", data)
    roles, more = CLUSTERS[how]
    several = make(data=one.data)
    several.run(*roles, flags=f"{flags} {more} --train-steps {steps}")
    actual = several.variables(steps)
    for key, value in one.variables(steps).items():
        np.testing.assert_allclose(actual[key], value, atol=near, err_msg=key)
    rel = 0.02 if name == "bfloat16" else 1e-5
    # The loss of the initial weights, in which a penalty for each replica would show.
    first, expected = (job.events("step")[0]["loss"] for job in (several, one))
    assert first == pytest.approx(expected, rel=rel)
    score, expected = (job.read("validation.json")["latest"] for job in (several, one))
    assert score == pytest.approx(expected, abs=near)
