"""Jobs that begin with the weights of others: real processes."""

import shutil

import numpy as np
import pytest

pytestmark = pytest.mark.cluster
FLAGS = ["--model", "own_models:batch_norm", "--batch-size", 32, "--optimizer", "sgd", "--deterministic"]


def test_all_replicas_begin_with_the_same_weights_and_a_resumed_job_takes_none(make):
    first, alone, several = make("first"), make("alone"), make("several")
    first.run("chief", flags=[*FLAGS, "--learning-rate", 0.05, "--train-steps", 60])
    begun = [*FLAGS, "--init-from", first.directory, "--learning-rate", 0.001, "--train-steps"]
    told = f"--init-from {first.directory}: 11 of 11 weights from the checkpoint of step 60"
    assert alone.run("chief", flags=[*begun, 20]).count(told) == 1
    assert several.run("chief", "worker", flags=[*begun, 20]).count(told) == 1
    ours, theirs, before = alone.variables(20), several.variables(20), first.variables(60)
    for name, value in ours.items():
        np.testing.assert_allclose(theirs[name], value, atol=1e-5, err_msg=name)
    kernel = next(name for name in ours if "model.Sdense" in name and "kernel" in name)
    assert 0 < np.abs(ours[kernel] - before[kernel]).max() < 0.05
    shutil.rmtree(first.directory)
    assert "--init-from" not in alone.run("chief", flags=[*begun, 30]).split("from step 20 to 30")[1]
    several.start("chief", flags=[*FLAGS, "--learning-rate", 0.001, "--train-steps", 30])
    assert several.wait() == {"chief-0": 2}
    assert f"init_from: '{first.directory}' -> None" in several.output()
