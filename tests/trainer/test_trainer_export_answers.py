"""What an exported model answers: what the model in training does, and of image files what of their pixels."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from numbered import picture

from common.manifest import Feature, Manifest
from components.convert.convert import convert
from components.convert.options import Options
from trainer.data import records
from trainer.export import export
from trainer.models import registry
from trainer.nn.weights import named
from trainer.tasks.of_dataset import Binary, Classification, MultiLabel, Regression

pytestmark = pytest.mark.cluster
ABC, SIZES = ("a", "b", "c"), [(24, 32), (40, 60), (61, 40), (12, 16), (7, 90), (90, 7), (480, 640)]
TASKS = [Classification(ABC), Binary(ABC[:2]), MultiLabel(ABC), Regression(ABC, (1.0, 2.0, 3.0))]


def exported(build: registry.Builder, model: keras.Model, manifest: Manifest, directory: object):
    """The model as a client loads it."""
    export(
        {name: weight.numpy() for name, weight in named(model).items()},
        build,
        manifest,
        str(directory),
    )
    return tf.saved_model.load(str(directory))


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_an_export_answers_as_the_model_in_training_for_each_task_and_precision(
    task, precision, tmp_path
):
    x, draw = Feature(name="x", dtype="float32", shape=(8, 8, 2)), np.random.default_rng(0)
    said = {
        "name": "made",
        "origin": "",
        "class_names": ABC,
        "record_bytes": None,
        "splits": {},
        "arguments": {},
    }
    manifest = Manifest(features=(x, Feature(name="label", dtype="int64")), label="label", **said)

    def network() -> keras.Model:
        layers = [
            keras.layers.Conv2D(16, 3),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
        ]
        layers += [
            keras.layers.Dense(16, "tanh"),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(task.outputs),
        ]
        inputs = keras.Input(x.shape, name="x")
        return keras.Model(
            {"x": inputs}, functools.reduce(lambda y, layer: layer(y), layers, inputs)
        )

    keras.mixed_precision.set_dtype_policy(precision)
    try:
        columns, model = {"x": tf.constant(draw.normal(size=(64, *x.shape)), tf.float32)}, network()
        model(columns, training=True)  # which moves the statistics
        loaded = exported(
            registry.Builder("made", network, task, dict, None), model, manifest, tmp_path / "model"
        )
    finally:
        keras.mixed_precision.set_dtype_policy("float32")  # what a client's process has
    answers = loaded.signatures["serving_default"](**columns)
    expected = tf.function(lambda columns: task.answer(model(columns, training=False)))(columns)
    assert (
        answers.keys() == expected.keys() and np.ptp(expected[task.answers[0]], axis=0).min() > 0.1
    )
    for key, value in expected.items():
        if value.dtype == tf.float32:
            np.testing.assert_allclose(answers[key], value, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(answers[key], value)


@pytest.mark.parametrize(("encoding", "of_spread"), [("raw", 0.02), ("source", 0)])
def test_image_files_are_answered_as_what_the_converter_and_the_reader_make_of_them(
    tmp_path, encoding, of_spread
):
    for i, size in enumerate(SIZES * 4):
        kind = ("PNG", "JPEG")[i // len(SIZES) % 2]
        (path := tmp_path / "source" / "ab"[i % 2] / f"{i}.{kind.lower()}").parent.mkdir(
            parents=True, exist_ok=True
        )
        path.write_bytes(picture(*size, kind, seed=i))
    fixed = {
        "dataset": "images",
        "source": str(tmp_path / "source"),
        "image_size": "24x32",
        "test_fraction": 0.0,
    }
    files, kept = str(tmp_path / "files"), str(tmp_path / "kept")
    columns = records.load(
        convert(Options(**fixed, output=files, encoding="source")), files, "train"
    )
    manifest = convert(Options(**fixed, output=kept, encoding=encoding))
    keras.utils.set_random_seed(1)
    build = registry.builder("numbered:network", manifest, {})
    signatures = exported(build, build(), manifest, tmp_path / "model").signatures
    batch = next(records.batches(manifest, kept, "train", 500))
    np.testing.assert_array_equal(
        batch["label"], columns["label"]
    )  # the same files in the same order
    of_files = signatures["image_bytes"](image_bytes=columns["image"])
    of_pixels = signatures["serving_default"](image=batch["image"])
    answers = of_pixels["probabilities"].numpy()
    np.testing.assert_allclose(
        of_files["probabilities"], answers, rtol=0, atol=of_spread * np.ptp(answers[:, 0])
    )
    assert of_files.keys() == of_pixels.keys() and np.ptp(answers[:, 0]) > 0.01


def test_only_what_image_files_can_hold_is_taken_from_them(digits, tmp_path):
    manifest = Manifest.load(digits)  # whose pixels are numbers from 0 to 16
    build = registry.builder("numbered:network", manifest, {})
    assert list(exported(build, build(), manifest, tmp_path / "model").signatures) == [
        "serving_default"
    ]
