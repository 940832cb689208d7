"""What an exported model answers: what the model in training does, and of image files what of their pixels."""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from numbered import picture

from components.convert.convert import convert
from components.convert.images import headers
from components.convert.options import Options
from trainer.base.manifest import Feature, Manifest
from trainer.data import records
from trainer.data.reader import decoding
from trainer.job_dir.export import export
from trainer.nn.models import registry
from trainer.nn.tasks.base import Task
from trainer.nn.tasks.classification import Binary, Classification
from trainer.nn.tasks.multi_label import MultiLabel
from trainer.nn.tasks.own import Own
from trainer.nn.tasks.regression import Regression
from trainer.nn.weights import named

ABC = ("a", "b", "c")
SIZES = [(24, 32), (40, 60), (61, 40), (12, 16), (7, 90), (90, 7), (480, 640)]
TASKS = {
    "classification": Classification(ABC),
    "binary": Binary(("no", "yes")),
    "several labels": MultiLabel(ABC),
    "numbers": Regression(ABC, (1.0, 2.0, 3.0)),
    "own": Own(Regression(("a",), (1.0,)), metrics=[keras.metrics.MeanAbsolutePercentageError(name="mape")]),
}
MADE = Manifest(
    name="made",
    origin="made up",
    features=(Feature(name="x", dtype="float32", shape=(8, 8, 2)), Feature(name="label", dtype="int64")),
    label="label",
    class_names=ABC,
    record_bytes=None,
    splits={},
    arguments={},
)


@pytest.fixture(params=["float32", "mixed_bfloat16"])
def precision(request):
    keras.mixed_precision.set_dtype_policy(request.param)
    yield request.param
    keras.mixed_precision.set_dtype_policy("float32")


def network(task: Task) -> keras.Model:
    x = keras.Input((8, 8, 2), name="x")
    y = keras.layers.ReLU()(keras.layers.BatchNormalization()(keras.layers.Conv2D(16, 3)(x)))
    y = keras.layers.Dropout(0.5)(keras.layers.Dense(16, "tanh")(keras.layers.Flatten()(y)))
    return keras.Model({"x": x}, keras.layers.Dense(task.outputs)(y))


def exported(manifest: Manifest, directory: pathlib.Path) -> None:
    build, draw = registry.builder("numbered:network", manifest, {}), np.random.default_rng(0)
    values = {name: draw.normal(size=weight.shape) * (len(weight.shape) > 1) for name, weight in named(build()).items()}
    export(values, build, manifest, str(directory / "model"))


def served(directory: pathlib.Path, signature: str):
    model = tf.saved_model.load(str(directory))
    return lambda _keep_alive=model, **columns: model.signatures[signature](**columns)


@pytest.mark.parametrize("name", TASKS)
def test_an_export_answers_as_the_model_in_training_for_each_task_and_precision(name, precision, tmp_path):
    task = TASKS[name]
    build = registry.Builder("made", lambda: network(task), task, dict, None)
    x, model = np.random.default_rng(0).normal(size=(64, 8, 8, 2)).astype(np.float32), network(task)
    for _ in range(9):
        model({"x": x}, training=True)  # which moves the statistics
    values = {name: weight.numpy() for name, weight in named(model).items()}
    export(values, build, MADE, str(tmp_path / "model"))
    keras.mixed_precision.set_dtype_policy("float32")  # what a client's process has
    answers = served(tmp_path / "model", "serving_default")(x=tf.constant(x))
    expected = tf.function(lambda x: task.answer(model({"x": x}, training=False)))(x)
    assert answers.keys() == expected.keys()
    for key, value in expected.items():
        if value.dtype == tf.float32:
            np.testing.assert_allclose(answers[key], value, rtol=1e-5, atol=1e-6, err_msg=key)
            assert np.ptp(value, axis=0).min() > 0.01
        else:
            np.testing.assert_array_equal(answers[key], value, err_msg=key)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("pictures")
    for i, size in enumerate(SIZES * 4):
        kind = ("PNG", "JPEG")[i // len(SIZES) % 2]
        path = root / "source" / "ab"[i % 2] / f"{i}.{kind.lower()}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(*size, kind, seed=i))
    return root


@pytest.mark.parametrize(("encoding", "of_spread"), [("raw", 0.02), ("source", 0)])
def test_image_files_are_answered_as_what_the_converter_and_the_reader_make_of_them(
    pictures, tmp_path, encoding, of_spread
):
    fixed = {"dataset": "images", "source": str(pictures / "source"), "image_size": "24x32", "test_fraction": 0.0}
    files, kept = tmp_path / "files", tmp_path / "kept"
    columns = records.resident(convert(Options(**fixed, output=str(files), encoding="source")), str(files), "train")
    manifest = convert(Options(**fixed, output=str(kept), encoding=encoding))
    exported(manifest, tmp_path)
    of_files = served(tmp_path / "model", "image_bytes")(image_bytes=columns["image"])
    batch = next(records.batches(manifest, str(kept), "train", 500))
    np.testing.assert_array_equal(batch["label"], columns["label"])  # the same files in the same order
    of_pixels = served(tmp_path / "model", "serving_default")(image=batch["image"])
    assert of_files.keys() == of_pixels.keys()
    answers = of_pixels["probabilities"].numpy()
    np.testing.assert_allclose(of_files["probabilities"], answers, rtol=0, atol=of_spread * np.ptp(answers))
    assert np.ptp(answers[:, 0]) > 0.01


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_pixels_of_files_are_the_converters_but_for_one_of_256_levels_where_it_resizes(kind):
    files = [picture(*size, kind, seed=i) for i, size in enumerate(SIZES)]
    decoded = decoding.decode(tf.constant(files), (24, 32, 3), accurate=True).numpy().astype(int)
    converted = np.stack([headers.decode(file, "", channels=3, size=(24, 32)) for file in files])
    assert np.abs(decoded - converted).max() == 1 and np.array_equal(decoded[0], converted[0])
    thin = picture(4, 300, kind)  # of which the central part is less than half a pixel wide
    expected = headers.decode(thin, "", channels=3, size=(100, 10)).astype(int)
    assert np.abs(decoding.decode(tf.constant([thin]), (100, 10, 3), accurate=True)[0] - expected).max() <= 1


def test_only_what_image_files_can_hold_is_taken_from_them(digits, tmp_path):
    manifest = Manifest.load(digits)  # whose pixels are numbers from 0 to 16
    exported(manifest, tmp_path)
    assert list(tf.saved_model.load(str(tmp_path / "model")).signatures) == ["serving_default"]
