"""A table trained by real processes."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import trips

pytestmark = pytest.mark.cluster
STEPS = 240
CLIENT = """
import json, sys
import tensorflow as tf
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
assert not {"trainer", "components", "common"} & set(sys.modules)
row = {"miles": [0.5], "seconds": [100], "when": [1400000000], "company": ["Blue"], "area": [-1], "same": [2.5]}
answer = serve(**{k: tf.constant(v, tf.int64 if k in ("seconds", "when", "area") else None) for k, v in row.items()})
print(json.dumps([answer["class_name"].numpy()[0].decode(), answer["probabilities"].numpy()[0].tolist()]))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    return trips.make(tmp_path_factory.mktemp("trips"), trips.rows(2000))


def test_workers_with_parameter_servers_and_an_evaluator_leave_a_model_for_tensorflow_alone(
    make, data, tmp_path
):
    asynchronous = make("servers", data)
    roles = ["chief", "worker", "worker", "ps", "ps", "evaluator"]
    asynchronous.start(*roles, flags=["--batch-size", 64, "--train-steps", STEPS])
    codes = asynchronous.wait_for("chief-0", "evaluator-0")
    assert set(codes.values()) == {0}, asynchronous.output()
    score = json.loads((asynchronous.directory / "validation.json").read_text())["latest"]
    assert score["step"] == STEPS
    assert score["auc"] > 0.75
    command = [sys.executable, "-I", "-c", CLIENT, str(asynchronous.directory / "model")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    name, probabilities = json.loads(done.stdout)
    assert name == ("no", "yes")[int(np.argmax(probabilities))]
    assert sum(probabilities) == pytest.approx(1)
