"""A table trained by real processes under every strategy."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import trips

pytestmark = pytest.mark.cluster
STEPS = 60
FLAGS = ["--deterministic", "--batch-size", "64", "--train-steps", STEPS, "--checkpoint-num-steps", STEPS // 2]
CLIENT = """
import json, sys
import tensorflow as tf
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
assert not {"trainer", "components"} & set(sys.modules)
row = {"miles": [0.5], "seconds": [100], "when": [1400000000], "company": ["Blue"], "area": [-1], "same": [2.5]}
answer = serve(**{k: tf.constant(v, tf.int64 if k in ("seconds", "when", "area") else None) for k, v in row.items()})
print(json.dumps([answer["class_name"].numpy()[0].decode(), answer["probabilities"].numpy()[0].tolist()]))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    return trips.make(tmp_path_factory.mktemp("trips"), trips.rows(2000))


def test_replicas_learn_what_one_does_and_a_resumed_job_has_its_bits(make, data):
    one, resumed = make("one", data), make("resumed", data)
    one.run("chief", flags=FLAGS)
    resumed.run("chief", flags=[*FLAGS, "--train-steps", STEPS // 2])
    resumed.run("chief", flags=FLAGS)
    assert resumed.digest(STEPS) == one.digest(STEPS)
    alike = {
        "mirrored": (["chief"], ["--strategy", "mirrored", "--logical-cpus", 2]),
        "two_workers": (["chief", "worker"], []),
    }
    for name, (roles, flags) in alike.items():
        several = make(name, data)
        several.run(*roles, flags=[*FLAGS, *flags])
        for key, value in one.variables(STEPS).items():
            np.testing.assert_allclose(several.variables(STEPS)[key], value, atol=2e-4, err_msg=f"{name} {key}")


def test_workers_with_parameter_servers_and_an_evaluator_leave_a_model_for_tensorflow_alone(make, data, tmp_path):
    asynchronous = make("servers", data)
    roles = ["chief", "worker", "worker", "ps", "ps", "evaluator"]
    asynchronous.start(*roles, flags=[*FLAGS[1:], "--train-steps", 4 * STEPS])
    codes = asynchronous.wait_for("chief-0", "evaluator-0")
    assert set(codes.values()) == {0}, asynchronous.output()
    score = json.loads((asynchronous.directory / "validation.json").read_text())["latest"]
    assert score["step"] == 4 * STEPS
    assert score["auc"] > 0.75
    command = [sys.executable, "-I", "-c", CLIENT, str(asynchronous.directory / "model")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    name, probabilities = json.loads(done.stdout)
    assert name == ("no", "yes")[int(np.argmax(probabilities))]
    assert sum(probabilities) == pytest.approx(1)
