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


def test_the_logits_are_those_of_one_keras_layer_for_each_feature(table, columns):
    ours = randomised(wide_deep.build(table, hidden_units=UNITS))
    theirs = wide_deep_peer.ordinary_model(table, hidden_units=UNITS)
    for i, own in enumerate(rows_of(ours, "wide", table)):
        theirs.get_layer(f"wide_{i}_weights").set_weights(own)
    deep = rows_of(ours, "deep", table)
    for i, (own, encoding) in enumerate(zip(deep, table.deep, strict=True)):
        if encoding.embedding:
            theirs.get_layer(f"deep_{i}_weights").set_weights(own[:1])
    first, *others = [layer for layer in theirs.layers if type(layer) is keras.layers.Dense and layer.use_bias]
    first.set_weights([np.concatenate([own[-1] for own in deep]), np.zeros(UNITS[0])])
    upper = [layer for layer in ours.layers if type(layer) is keras.layers.Dense and "_dense" not in layer.name]
    for layer, other in zip(upper, others, strict=True):
        other.set_weights(layer.get_weights())
    logits = ours(wide_deep.prepare(table, columns))
    expected = theirs(wide_deep_peer.ordinary_columns(table, columns))
    assert logits.shape == (table.split("test").examples, 2)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


def test_layers_and_dropout_are_as_asked_for(table, columns):
    from trainer.nn import randomness

    wider = builder(ask("--model", "wide_deep", "--hidden-units", "7,4"), table)()
    assert [layer.units for layer in wider.layers if type(layer) is keras.layers.Dense] == [7, 4, 2, 2]
    build = builder(ask("--model", "wide_deep", "--dropout", "0.5"), table)
    model, features = randomised(build()), build.prepare(columns)
    with randomness.deterministic_context(seed=0, step=3, first=0):
        dropped = model(features, training=True)
    assert not np.allclose(dropped, model(features, training=False))
    for flags in (["--hidden-units", "7"], ["--dropout", "0.1"]):
        with pytest.raises(UserError, match=f"{flags[0]} means nothing to --model cnn"):
            builder(ask("--model", "cnn", *flags), table)


def test_the_model_follows_from_the_dataset_and_another_that_does_not_fit_is_refused(digits, table):
    images = Manifest.load(digits)
    assert ask().on(table).model == "wide_deep"
    assert ask().on(images).model == "cnn"
    assert ask("--model", "my.module:build").on(table).model == "my.module:build"
    with pytest.raises(UserError, match="--model resnet does not fit dataset 'trips'; use wide_deep"):
        ask("--model", "resnet").on(table)
    with pytest.raises(UserError, match="wide_deep does not fit dataset 'digits'; use cnn or resnet"):
        ask("--model", "wide_deep").on(images)
    with pytest.raises(UserError, match="--augment crop_flip is for images; dataset 'trips' is a table"):
        ask("--augment", "crop_flip").on(table)


@pytest.mark.cluster
def test_the_exported_model_takes_raw_columns_one_by_one_or_many(table, columns, tmp_path):
    build = builder(ask("--model", "wide_deep"), table)
    model = randomised(build())
    weights = {name: weight.numpy() for name, weight in named(model).items()}
    export.export(weights, build, table, str(tmp_path / "model"))
    told = json.loads((tmp_path / "model" / "assets.extra" / "dataset.json").read_text())
    dataset = {"dataset": "trips", "fingerprint": table.fingerprint, "arguments": dict(table.arguments)}
    headers = [column["header"] for column in told.pop("columns")]
    assert headers == ["area", "company", "miles", "same", "seconds", "when"]
    signatures = ["serving_default", "raw", "faults"]
    assert told == {"model": "wide_deep", "task": None, "signatures": signatures, **dataset}
    served = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    raw = {feature.name: columns[feature.name] for feature in table.inputs}
    assert set(served.structured_input_signature[1]) == set(raw)
    assert "tip" not in raw
    answers = served(**raw)
    expected = tf.nn.softmax(model(build.prepare(columns)))
    np.testing.assert_allclose(answers["probabilities"], expected, rtol=1e-5)
    names = [table.class_names[i].encode() for i in answers["class_index"].numpy()]
    assert answers["class_name"].numpy().tolist() == names
    one = served(**{name: column[3:4] for name, column in raw.items()})
    np.testing.assert_allclose(one["probabilities"], answers["probabilities"][3:4], rtol=1e-5)
    defaults, absent = {"miles": 0.0, "company": ""}, {"miles": np.nan, "company": "-"}
    stood_in, missing = ({**raw, **{n: tf.fill([len(raw[n])], v) for n, v in by.items()}} for by in (defaults, absent))
    np.testing.assert_array_equal(served(**missing)["probabilities"], served(**stood_in)["probabilities"])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"same: a value is missing, .* no default for it \(row 3\)"
    ):
        served(**raw | {"same": tf.constant([2.5] * 3 + [np.nan] + [2.5] * (len(raw["same"]) - 4))})


@pytest.mark.cluster
def test_export_takes_texts(data, table, tmp_path):
    with open(data.parent / "rows.csv", newline="", encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    texts = {f.name: tf.constant([row[f.name] for row in rows]) for f in table.inputs}
    build = builder(ask("--model", "wide_deep"), table)
    model = randomised(build())
    weights = {name: weight.numpy() for name, weight in named(model).items()}
    export.export(weights, build, table, str(tmp_path / "model"))
    signatures = tf.saved_model.load(str(tmp_path / "model")).signatures
    answers = signatures["raw"](**texts)
    typed, faults = parse_texts(table, texts)
    assert not any(faults.numpy()) and not any(signatures["faults"](**texts)["faults"].numpy())
    expected = signatures["serving_default"](**typed)
    for name, values in answers.items():
        np.testing.assert_array_equal(values, expected[name])
    wrong = {**texts, "same": tf.constant(["2.5", "", "x"]), **{n: texts[n][:3] for n in texts if n != "same"}}
    expected = [b"", b"same: is missing, and the schema has no default for it", b"same: 'x' is no finite 32-bit number"]
    assert signatures["faults"](**wrong)["faults"].numpy().tolist() == expected
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"same: is missing, .* for it \(row 1\)"):
        signatures["raw"](**wrong)


def test_a_model_without_a_preparation_of_its_own_sees_the_inputs_and_nothing_that_tells_the_label(table, columns):
    build = builder(ask("--model", "trips:of_my_own"), table)
    found = set(build.prepare({**columns, "label": columns["tip"]}))
    assert found == {"label", "miles", "seconds", "when", "company", "area", "same"}
    assert build()(build.prepare(columns)).shape == (table.split("test").examples, 2)
