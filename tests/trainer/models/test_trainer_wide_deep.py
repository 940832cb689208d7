import numpy as np
import pytest
import trips

from tests.programs import run_python
from trainer.data import records
from trainer.models import wide_deep


def test_network_answers_as_earlier_versions(data, table):
    """Figures of a model that agreed with the same network of a Keras layer for each encoding."""
    model, random = wide_deep.build(table, hidden_units=(5, 3)), np.random.default_rng(0)
    model.set_weights([random.normal(size=w.shape).astype(np.float32) for w in model.weights])
    columns = records.load(table, str(data), "test")
    del columns[table.label]
    logits = model(wide_deep.prepare(table, columns))
    assert logits.shape == (table.split("test").examples, 2)
    expected = [[0.061519, -0.188477], [1.308301, -1.395699]]
    np.testing.assert_allclose(logits[:2], expected, atol=1e-4)


CLIENT = """
import sys
import tensorflow as tf
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
row = {"miles": [0.5], "company": ["Blue"], "same": [2.5]}
row |= {name: tf.constant([9], tf.int64) for name in ("seconds", "when", "area")}
print(serve(**{name: tf.constant(value) for name, value in row.items()})["class_name"][0].numpy())
assert not {"trainer", "components", "common"} & set(sys.modules)
"""


@pytest.mark.cluster
def test_parameter_servers_leave_model_for_tensorflow(make, tmp_path):
    job = make(data=trips.make(tmp_path / "trips", trips.rows(2000)))
    roles = ["chief", "worker", "worker", "ps", "ps", "evaluator"]
    job.start(*roles, flags="--batch-size 64 --train-steps 240")
    assert job.wait("chief-0", "evaluator-0") == {"chief-0": 0, "evaluator-0": 0}
    score = job.read("validation.json")["latest"]
    assert score["step"] == 240 and score["auc"] > 0.75
    command = ["-I", "-c", CLIENT, job.directory / "model"]
    assert run_python(*command, cwd=tmp_path, stderr=None) in ("b'no'\n", "b'yes'\n")
