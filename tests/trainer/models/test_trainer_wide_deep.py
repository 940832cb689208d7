import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
import trips
from bench import wide_deep_peer
from parsed import options

from common.manifest import Manifest
from trainer import export
from trainer.data import column_encodings, records
from trainer.models import wide_deep
from trainer.nn import randomness
from trainer.nn.weights import named

UNITS = (5, 3)


@pytest.fixture
def columns(data, table) -> records.Columns:
    columns = records.load(table, str(data), "test")
    return {name: column for name, column in columns.items() if name != table.label}


def randomised(model: keras.Model) -> keras.Model:
    random = np.random.default_rng(0)
    model.set_weights([random.normal(size=w.shape).astype(np.float32) for w in model.weights])
    return model


def dense_layers(model: keras.Model) -> list[keras.layers.Dense]:
    """The layers with a bias that are alike in both models."""
    layers = [layer for layer in model.layers if type(layer) is keras.layers.Dense]
    return [layer for layer in layers if layer.use_bias and not layer.name.endswith("_dense")]


def copy_encodings(ours: keras.Model, theirs: keras.Model, part: str, manifest: Manifest) -> None:
    """Gives each encoding's layers the rows that it has in the tables and matrix of a part."""
    matrix = iter(ours.get_layer(f"{part}_dense").kernel.numpy())
    of_first, order = {}, getattr(manifest, part)
    for name, encodings in column_encodings.inputs(part, manifest).items():
        table = iter(
            ours.get_layer(f"{name}_table").table.numpy() if encodings[0].categories else []
        )
        for encoding in encodings:
            layer = f"{part}_{order.index(encoding)}_weights"
            rows = [next(table) for _ in range(encoding.categories or 0)]
            if encoding.embedding or not encoding.categories:
                inner = [next(matrix) for _ in range(encoding.embedding or 1)]
            else:
                inner = rows
            if part == "wide" or encoding.embedding:
                theirs.get_layer(layer).set_weights([np.array(rows or inner)])
            of_first[order.index(encoding)] = inner
    if part == "deep":
        first = dense_layers(theirs)[0]
        kernel = np.concatenate([of_first[i] for i in range(len(order))])
        first.set_weights([kernel, np.zeros(first.units)])


def test_logits_agree_with_keras_layers(table, columns):
    ours = randomised(wide_deep.build(table, hidden_units=UNITS))
    theirs = wide_deep_peer.ordinary_model(table, hidden_units=UNITS)
    for part in ("wide", "deep"):
        copy_encodings(ours, theirs, part, table)
    for layer, other in zip(dense_layers(ours), dense_layers(theirs)[1:], strict=True):
        other.set_weights(layer.get_weights())
    logits = ours(wide_deep.prepare(table, columns))
    expected = theirs(wide_deep_peer.ordinary_columns(table, columns))
    assert logits.shape == (table.split("test").examples, 2)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


def test_options_of_network_are_used(table, columns):
    build = options("--model wide_deep --hidden-units 7,4 --dropout 0.5").builder(table)
    model, features = randomised(build()), build.prepare(columns)
    assert model.get_layer("deep_dense").units == 7
    with randomness.deterministic_context(seed=0, step=3, first=0):
        dropped = model(features, training=True)
    assert not np.allclose(dropped, model(features, training=False))


@pytest.mark.cluster
def test_export_answers_and_refuses(table, columns, tmp_path):
    build = options("--model wide_deep").builder(table)
    model = randomised(build())
    weights = {name: weight.numpy() for name, weight in named(model).items()}
    export.export(weights, build, table, str(tmp_path / "model"))
    facts = json.loads((tmp_path / "model" / "assets.extra" / "dataset.json").read_text())
    assert (facts["fingerprint"], facts["arguments"]) == (table.fingerprint, table.arguments)
    assert facts["signatures"] == ["serving_default", "raw", "faults"]
    names = [column["header"] for column in facts["columns"]]
    assert names == ["area", "company", "miles", "same", "seconds", "when"]
    signatures = tf.saved_model.load(str(tmp_path / "model")).signatures
    values = {name: columns[name] for name in names}
    answers = signatures["serving_default"](**values)["probabilities"]
    expected = tf.nn.softmax(model(build.prepare(columns)))
    np.testing.assert_allclose(answers, expected, rtol=1e-5)
    missing = {"same": tf.fill(values["same"].shape, np.nan)}
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"same: a value is missing"):
        signatures["serving_default"](**values | missing)
    texts = {name: tf.constant(["1", "x" if name == "same" else "2"]) for name in names}
    faults = signatures["faults"](**texts)["faults"].numpy().tolist()
    assert faults == [b"", b"same: 'x' is no finite 32-bit number"]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"same: .*x.* \(row 1\)"):
        signatures["raw"](**texts)


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
    command = [sys.executable, "-I", "-c", CLIENT, str(job.directory / "model")]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert answer.stdout in ("b'no'\n", "b'yes'\n"), answer.stderr
