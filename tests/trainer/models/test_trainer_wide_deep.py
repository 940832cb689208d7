import csv
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from bench import wide_deep_peer

from common.errors import UserError
from common.manifest import Manifest
from trainer import export, options
from trainer.data import column_encodings, records
from trainer.data.serving_preprocessing import parse_texts
from trainer.models import registry, wide_deep
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


def ask(*flags: str) -> options.Options:
    return options.parse(["--data-dir", "d", "--job-dir", "j", "--train-steps", "1", *flags], {})


def builder(opts: options.Options, manifest: Manifest) -> registry.Builder:
    return registry.builder(opts.model, manifest, opts.network)


def rows_of(model: keras.Model, part: str, manifest: Manifest) -> list[np.ndarray]:
    """For each encoding of a part its weights: of a number its row of the matrix, of a category its rows of a table."""
    found, at = {}, 0
    for name, encodings in column_encodings.inputs(part, manifest).items():
        first = 0
        table = model.get_layer(f"{name}_table").table.numpy() if encodings[0].categories else None
        for encoding in encodings:
            width = encoding.embedding or 1
            if encoding.categories:
                own = [table[first : first + encoding.categories]]
                first += encoding.categories
            else:
                own = []
            if encoding.embedding or not encoding.categories:
                own.append(model.get_layer(f"{part}_dense").kernel.numpy()[at : at + width])
                at += width
            found[id(encoding)] = own
    return [found[id(encoding)] for encoding in getattr(manifest, part)]


def test_logits_agree_with_keras_layers(table, columns):
    ours = randomised(wide_deep.build(table, hidden_units=UNITS))
    theirs = wide_deep_peer.ordinary_model(table, hidden_units=UNITS)
    for i, own in enumerate(rows_of(ours, "wide", table)):
        theirs.get_layer(f"wide_{i}_weights").set_weights(own)
    deep = rows_of(ours, "deep", table)
    for i, (own, encoding) in enumerate(zip(deep, table.deep, strict=True)):
        if encoding.embedding:
            theirs.get_layer(f"deep_{i}_weights").set_weights(own[:1])
    first, *others = [
        layer for layer in theirs.layers if type(layer) is keras.layers.Dense and layer.use_bias
    ]
    first.set_weights([np.concatenate([own[-1] for own in deep]), np.zeros(UNITS[0])])
    upper = [
        layer
        for layer in ours.layers
        if type(layer) is keras.layers.Dense and "_dense" not in layer.name
    ]
    for layer, other in zip(upper, others, strict=True):
        other.set_weights(layer.get_weights())
    logits = ours(wide_deep.prepare(table, columns))
    expected = theirs(wide_deep_peer.ordinary_columns(table, columns))
    assert logits.shape == (table.split("test").examples, 2)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


def test_options_of_network_are_used(table, columns):
    wider = builder(ask("--model", "wide_deep", "--hidden-units", "7,4"), table)()
    assert [layer.units for layer in wider.layers if type(layer) is keras.layers.Dense] == [
        7,
        4,
        2,
        2,
    ]
    build = builder(ask("--model", "wide_deep", "--dropout", "0.5"), table)
    model, features = randomised(build()), build.prepare(columns)
    with randomness.deterministic_context(seed=0, step=3, first=0):
        dropped = model(features, training=True)
    assert not np.allclose(dropped, model(features, training=False))
    for flags in (["--hidden-units", "7"], ["--dropout", "0.1"]):
        with pytest.raises(UserError, match=f"{flags[0]} means nothing to --model cnn"):
            builder(ask("--model", "cnn", *flags), table)


def test_model_must_fit_dataset(digits, table):
    images = Manifest.load(digits)
    assert ask().on(table).model == "wide_deep"
    assert ask().on(images).model == "cnn"
    assert ask("--model", "my.module:build").on(table).model == "my.module:build"
    with pytest.raises(
        UserError, match="--model resnet does not fit dataset 'trips'; use wide_deep"
    ):
        ask("--model", "resnet").on(table)
    with pytest.raises(
        UserError, match="wide_deep does not fit dataset 'digits'; use cnn or resnet"
    ):
        ask("--model", "wide_deep").on(images)
    with pytest.raises(
        UserError, match="--augment crop_flip is for images; dataset 'trips' is a table"
    ):
        ask("--augment", "crop_flip").on(table)


@pytest.mark.cluster
def test_export_takes_values_and_texts(data, table, columns, tmp_path):
    with open(data.parent / "rows.csv", newline="", encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    texts = {f.name: tf.constant([row[f.name] for row in rows]) for f in table.inputs}
    build = builder(ask("--model", "wide_deep"), table)
    model = randomised(build())
    weights = {name: weight.numpy() for name, weight in named(model).items()}
    export.export(weights, build, table, str(tmp_path / "model"))
    described = json.loads((tmp_path / "model" / "assets.extra" / "dataset.json").read_text())
    headers = [column["header"] for column in described.pop("columns")]
    assert headers == ["area", "company", "miles", "same", "seconds", "when"]
    dataset = {
        "dataset": "trips",
        "fingerprint": table.fingerprint,
        "arguments": dict(table.arguments),
    }
    names = ["serving_default", "raw", "faults"]
    assert described == {"model": "wide_deep", "task": None, "signatures": names, **dataset}
    signatures = tf.saved_model.load(str(tmp_path / "model")).signatures
    served = signatures["serving_default"]
    values = {feature.name: columns[feature.name] for feature in table.inputs}
    answers = served(**values)
    np.testing.assert_allclose(
        answers["probabilities"], tf.nn.softmax(model(build.prepare(columns))), rtol=1e-5
    )
    one = served(**{name: column[3:4] for name, column in values.items()})
    np.testing.assert_allclose(one["probabilities"], answers["probabilities"][3:4], rtol=1e-5)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"same: a value is missing, .* for it \(row 0\)"
    ):
        served(**values | {"same": tf.fill([len(values["same"])], np.nan)})

    typed, faults = parse_texts(table, texts)
    assert not any(faults.numpy()) and not any(signatures["faults"](**texts)["faults"].numpy())
    expected = served(**typed)
    for name, actual in signatures["raw"](**texts).items():
        np.testing.assert_array_equal(actual, expected[name])
    wrong = {
        **{name: text[:3] for name, text in texts.items()},
        "same": tf.constant(["2.5", "", "x"]),
    }
    messages = [
        b"",
        b"same: is missing, and the schema has no default for it",
        b"same: 'x' is no finite 32-bit number",
    ]
    assert signatures["faults"](**wrong)["faults"].numpy().tolist() == messages
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"same: is missing, .* for it \(row 1\)"
    ):
        signatures["raw"](**wrong)


def test_own_model_takes_inputs_only(table, columns):
    build = builder(ask("--model", "trips:of_my_own"), table)
    found = set(build.prepare({**columns, "label": columns["tip"]}))
    assert found == {"label", "miles", "seconds", "when", "company", "area", "same"}
    assert build()(build.prepare(columns)).shape == (table.split("test").examples, 2)
