"""A job whose recurrent network drops inside of its loop over time."""

import numpy as np
import pytest

pytestmark = pytest.mark.cluster
FLAGS = "--model recurrent:network --batch-size 33 --optimizer sgd --learning-rate 0.05 --deterministic"


def test_recurrent_dropout_resumes_on_any_replicas(make):
    straight, resumed = make("straight"), make("resumed")
    straight.run("chief", flags=[*FLAGS.split(), "--train-steps", 20])
    for until in (7, 20):
        resumed.run("chief", flags=[*FLAGS.split(), "--train-steps", until])
    assert resumed.digest(20) == straight.digest(20)
    several = make("several")
    several.run("chief", "worker", flags=[*FLAGS.split(), "--train-steps", 20])
    for name, value in straight.variables(20).items():
        np.testing.assert_allclose(several.variables(20)[name], value, atol=1e-5, err_msg=name)
