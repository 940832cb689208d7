"""What TensorFlow and TensorFlow Datasets make of the same files; together, for importing them takes seconds."""

import dataclasses
import io
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image

from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources import images
from components.convert.sources import tfds as source
from components.convert.sources.registry import source_digest

pytestmark = pytest.mark.cluster

ROOT = pathlib.Path(__file__).parents[3]
RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (20, 30, 3), np.uint8)
ALPHA = np.concatenate([PIXELS, PIXELS[..., :1]], axis=2)
DEEP = PIXELS[..., 0].astype(np.uint16) * 256 + 255


def file(pixels: np.ndarray | Image.Image, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    image = Image.fromarray(pixels) if isinstance(pixels, np.ndarray) else pixels
    image.save(stream, kind, quality=95)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("pixels", "channels"), [(PIXELS, 3), (PIXELS[..., 0], 3), (PIXELS[..., 0], 1), (ALPHA, 3), (DEEP, 1)]
)
def test_tensorflow_decodes_the_same_pixels(pixels, channels):
    ours = images.decode(file(pixels), "", channels=channels, size=(20, 30))
    np.testing.assert_array_equal(ours, tf.io.decode_image(file(pixels), channels=channels))


class Tiny(tfds.core.GeneratorBasedBuilder):
    """Whatever features and examples it is made for."""

    VERSION = tfds.core.Version("1.2.3")
    FEATURES = SPLITS = SUPERVISED = None

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(self.FEATURES), supervised_keys=self.SUPERVISED
        )

    def _split_generators(self, dl_manager):
        return {name: enumerate(examples) for name, examples in self.SPLITS.items()}

    def _generate_examples(self):
        raise NotImplementedError


@pytest.fixture
def prepared(tmp_path):
    """Has TensorFlow Datasets prepare `tiny`; returns its data directory."""

    def make(features, splits, supervised=None):
        tfds.disable_progress_bar()
        given = {"FEATURES": features, "SPLITS": splits, "SUPERVISED": supervised}
        made = type("Tiny", (Tiny,), given, skip_registration=True)
        made.name = "tiny"
        made(data_dir=tmp_path / "tfds").download_and_prepare()
        return tmp_path / "tfds"

    return make


def read(data_dir: pathlib.Path, split: str):
    """As TensorFlow Datasets itself reads it, in the order of the files."""
    config = tfds.ReadConfig(interleave_cycle_length=1)
    builder = tfds.builder_from_directory(data_dir / "tiny" / "1.2.3")
    return list(tfds.as_numpy(builder.as_dataset(split, read_config=config)))


def options(data_dir: pathlib.Path) -> Options:
    shape = {"shards": 1, "validation_fraction": 0, "test_fraction": 0}
    return Options(dataset="tfds:tiny", source=str(data_dir), output=str(data_dir.parent / "out"), **shape)


def parsed(directory: pathlib.Path, split: str, spec: dict) -> list[dict]:
    files = sorted(str(path) for path in directory.glob(f"{split}-*.tfrecord"))
    records = tf.data.TFRecordDataset(files).map(lambda record: tf.io.parse_single_example(record, spec))
    return list(records.as_numpy_iterator())


IMAGE = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def test_small_images_are_those_that_tfds_decodes_in_its_order(prepared):
    features = {
        "image": tfds.features.Image(shape=(6, 5, 1)),
        "label": tfds.features.ClassLabel(names=["no", "yes"]),
        "id": tfds.features.Text(),
        "box": tfds.features.BBoxFeature(),
    }
    box = tfds.features.BBox(0.0, 0.0, 1.0, 1.0)
    splits = {
        name: [
            {"image": RANDOM.integers(0, 256, (6, 5, 1), np.uint8), "label": i % 2, "id": str(i), "box": box}
            for i in range(count)
        ]
        for name, count in (("train", 20), ("val", 6), ("test", 4), ("unlabelled", 3))
    }
    data_dir = prepared(features, splits, ("image", "label"))
    manifest = convert(options(data_dir))
    assert manifest.name == "tfds:tiny" and manifest.class_names == ("no", "yes")
    assert manifest.arguments["schema"] == {"tfds": "1.2.3"} and "tiny/1.2.3" in manifest.origin
    assert manifest.feature("image").shape == (6, 5, 1) and manifest.feature("image").encoding is None
    for split, native in (("train", "train"), ("validation", "val"), ("test", "test")):
        ours, theirs = parsed(data_dir.parent / "out", split, IMAGE), read(data_dir, native)
        assert len(ours) == len(theirs) == len(splits[native])
        for one, other in zip(ours, theirs, strict=True):
            assert (one["image"], one["label"]) == (other["image"].tobytes(), other["label"])


TABLE = {
    "age": tfds.features.Scalar(np.float32),
    "born": tfds.features.Scalar(np.int32),
    "home.dest": tfds.features.Text(),
    "sex": tfds.features.ClassLabel(names=["m", "f"]),
    "alone": tfds.features.Scalar(np.bool_),
    "sizes": tfds.features.Tensor(shape=(3,), dtype=np.float64),
}


def row(i: int) -> dict:
    return {"age": i / 3, "born": i - 5, "home.dest": "x" * i, "sex": i % 2, "alone": i % 3 == 0, "sizes": [i, -i, 0.5]}


@pytest.mark.parametrize("nested", [False, True])
def test_a_table_has_every_value(prepared, nested):
    label = {"survived": tfds.features.ClassLabel(names=["no", "yes"])}
    rows = {"train": range(40), "test": range(100, 110)}
    features = {**({"features": TABLE} if nested else TABLE), **label}
    splits = {
        name: [{**({"features": row(i)} if nested else row(i)), "survived": i % 2} for i in part]
        for name, part in rows.items()
    }
    data_dir = prepared(features, splits, ("features" if nested else "age", "survived"))
    manifest = convert(options(data_dir))
    prefix = "features_" if nested else ""
    kinds = {f.name: f.dtype for f in manifest.features if f.name != "label"}
    assert kinds == {
        **{prefix + name: "int64" for name in ("alone", "born", "sex")},
        **{prefix + name: "float32" for name in ("age", "sizes_0", "sizes_1", "sizes_2")},
        prefix + "home_dest": "string",
    }
    taken = {encoding.columns[0]: encoding.kind for encoding in manifest.deep}
    assert taken.keys() == kinds.keys() and taken[prefix + "sex"] == taken[prefix + "home_dest"] == "vocabulary"
    spec = {f.name: tf.io.FixedLenFeature([], f.dtype) for f in manifest.features}
    for split in splits:
        ours, theirs = parsed(data_dir.parent / "out", split, spec), read(data_dir, split)
        for one, other in zip(ours, theirs, strict=True):
            values = other["features"] if nested else other
            expected = (
                values | {f"sizes_{i}": values["sizes"][i] for i in range(3)} | {"home_dest": values["home.dest"]}
            )
            assert one.pop("label") == other["survived"]
            assert one == {prefix + name: expected[name] for name in (key.removeprefix(prefix) for key in one)}


NUMBERS = {"x": tfds.features.Scalar(np.float32), "label_0": tfds.features.Scalar(np.int64)}
LABELS = {
    "a number": (tfds.features.Scalar(np.float64), lambda i: i / 3, ("age",), np.float32(np.arange(9) / 3)),
    "numbers": (
        tfds.features.Tensor(shape=(2,), dtype=np.float32),
        lambda i: [i / 3, -i],
        ("age[0]", "age[1]"),
        np.stack([np.float32(np.arange(9) / 3), -np.arange(9, dtype=np.float32)], axis=1),
    ),
    "labels": (
        tfds.features.Tensor(shape=(3,), dtype=np.bool_),
        lambda i: [i > 3, i % 2 == 0, True],
        ("age[0]", "age[1]", "age[2]"),
        np.array([[i > 3, i % 2 == 0, 1] for i in range(9)], np.int64),
    ),
}


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("what", LABELS)
def test_numbers_and_several_labels_are_predicted_if_supervised_keys_name_them(prepared, what, images):
    feature, value, names, expected = LABELS[what]
    others = {"image": tfds.features.Image(shape=(3, 4, 1))} if images else NUMBERS
    made = (lambda i: {"image": np.full((3, 4, 1), i, np.uint8)}) if images else (lambda i: {"x": i, "label_0": i})
    splits = {"train": [{**made(i), "age": value(i)} for i in range(9)]}
    data_dir = prepared({**others, "age": feature}, splits, (next(iter(others)), "age"))
    manifest = convert(options(data_dir))
    task = "multi_label" if what == "labels" else "regression"
    assert (manifest.task, manifest.targets, manifest.class_names) == (task, names, ())
    inputs = {"image"} if images else {"x", "label_0" if len(names) < 2 else "label_0_"}
    assert {f.name for f in manifest.inputs} == inputs
    label = manifest.feature("label")
    spec = {"label": tf.io.FixedLenFeature(label.shape, label.dtype)}
    ours, theirs = parsed(data_dir.parent / "out", "train", spec), read(data_dir, "train")
    found = np.array([example["label"] for example in ours])
    order = [int(example["image"][0, 0, 0]) if images else int(example["x"]) for example in theirs]
    assert found.dtype == expected.dtype and np.array_equal(found, expected[order])


CLASS = tfds.features.ClassLabel(num_classes=2)
NUMBER = {"x": tfds.features.Scalar(np.float32), "label": CLASS}


@pytest.mark.parametrize(
    ("features", "example", "message"),
    [
        ({"x": NUMBER["x"]}, {"x": 0.5}, "needed is one ClassLabel"),
        (
            {"a": tfds.features.Sequence(np.int64), "label": CLASS},
            {"a": [1, 2], "label": 0},
            "neither an image nor only numbers and texts (a: Sequence",
        ),
        (
            {"image": tfds.features.Image(shape=(2, 2, 1), dtype=np.uint16), "label": CLASS},
            {"image": np.zeros((2, 2, 1), np.uint16), "label": 0},
            "images that are not of 8 bits",
        ),
    ],
    ids=["no label", "sequence", "16 bits"],
)
def test_what_is_not_supported_is_refused_with_the_features(prepared, fails, features, example, message):
    data_dir = prepared(features, {"train": [example] * 3})
    line = fails("--dataset", "tfds:tiny", "--source", data_dir, "--output", data_dir.parent / "out")
    assert message in line and not (data_dir.parent / "out").exists()


def test_a_damaged_file_and_a_wrong_name_are_told_and_the_digest_is_of_the_files(
    prepared, fails, tmp_path, bucket, bytes_read, monkeypatch
):
    data_dir = prepared(NUMBER, {"train": [{"x": float(i), "label": i % 2} for i in range(9)]})
    (directory,) = (data_dir / "tiny").iterdir()
    arguments = ("--output", tmp_path / "out", "--source", directory, "--dataset")
    assert "holds tfds:tiny/1.2.3, not tfds:other" in fails(*arguments, "tfds:other")
    (path,) = directory.glob("*.tfrecord*")
    whole, digest = path.read_bytes(), source_digest("tfds:tiny", str(data_dir))
    assert digest == source_digest("tfds:tiny", str(directory))
    shutil.copytree(data_dir, bucket / "tfds")
    monkeypatch.setattr(source, "_MOUNT", bucket.parent)  # as steps on Vertex AI see it
    mounted = convert(dataclasses.replace(options(data_dir), source="gs://demo/tfds", output=str(tmp_path / "there")))
    assert mounted == convert(dataclasses.replace(options(data_dir), output=str(tmp_path / "here")))
    (bucket / "tfds" / "more").write_text("more")
    read, before = bytes_read(), source_digest("tfds:tiny", "gs://demo/tfds")
    (bucket / "tfds" / "more").write_text("other")
    assert before != source_digest("tfds:tiny", "gs://demo/tfds") and bytes_read() == read
    for damaged in (whole[:-1], whole[:5], whole[:20] + b"x" + whole[21:], b"x" + whole[1:]):
        path.write_bytes(damaged)
        assert source_digest("tfds:tiny", str(data_dir)) != digest
        line = fails(*arguments, "tfds:tiny")
        assert str(path) in line and "damaged" in line
    path.unlink()
    assert str(path) in fails(*arguments, "tfds:tiny")


def test_a_version_that_is_published_has_a_digest_without_network(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    digests = [source_digest(name, None) for name in ("tfds:mnist", "tfds:mnist:3.0.1", "tfds:kmnist")]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("tfds:mnits", "unknown dataset of TensorFlow Datasets 'mnits'; did you mean 'mnist'"),
        ("tfds:mnist:9.9.9", "cannot be loaded at version 9.9.9, only: 3.0.1"),
        ("tfds:imagenet2012", "cannot be downloaded; get its files and give --source DIR"),
        ("tfds:mnist --source .", "holds neither tfds:mnist prepared nor all its files (missing t10k-images-idx3"),
    ],
)
def test_what_nobody_can_download(tmp_path, fails, monkeypatch, flags, message):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    line = fails("--dataset", *flags.split(), "--output", tmp_path / "out")
    assert message in line and not (tmp_path / "out").exists()


def test_no_network_and_no_source(tmp_path, monkeypatch):
    proxy = {"TFDS_DATA_DIR": str(tmp_path), "https_proxy": "http://127.0.0.1:9", "PYTHONPATH": str(ROOT)}
    proxy["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    flags = ("--dataset", "tfds:mnist", "--output", "out")
    command = [sys.executable, "-m", "components.convert", *flags]
    run = subprocess.run(command, cwd=tmp_path, env={**os.environ, **proxy}, capture_output=True, text=True)
    assert run.returncode == 2 and run.stderr.count("\n") == 1
    assert "cannot reach storage.googleapis.com" in run.stderr and "--source" in run.stderr
    assert not (tmp_path / "out").exists() and not (tmp_path / "cache").exists()
