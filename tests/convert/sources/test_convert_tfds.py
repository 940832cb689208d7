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


def options(data_dir: pathlib.Path, schema: str | None = None) -> Options:
    flags = {"shards": 1, "validation_fraction": 0, "test_fraction": 0}
    if schema:
        flags["schema"] = str(data_dir.parent / "schema.yaml")
        pathlib.Path(flags["schema"]).write_text(schema)
    return Options(dataset="tfds:tiny", source=str(data_dir), output=str(data_dir.parent / "out"), **flags)


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
    "age": tfds.features.Scalar(np.float64),
    "born": tfds.features.Scalar(np.int32),
    "home.dest": tfds.features.Text(),
    "alone": tfds.features.Scalar(np.bool_),
    "sizes": tfds.features.Tensor(shape=(3,), dtype=np.float64),
}
CLASS = tfds.features.ClassLabel(names=["no", "yes"])
SCHEMA = """
name: people
origin: made up
columns:
  age: {type: float, header: features/age}
  born: {type: int, header: features/born}
  home: {type: string, header: features/home.dest}
  alone: {type: int, header: features/alone}
  last: {type: float, header: "features/sizes[2]"}
  survived: {type: int}
label: {column: survived, classes: ["no", "yes"]}
deep: [{column: age, numeric: z_score}, {column: home, vocabulary: 9}]
other_columns: ignore
missing: []
"""


def test_table_has_the_values_that_tfds_reads(prepared):
    rows = [
        {"age": i / 3, "born": i - 5, "home.dest": "x" * i, "alone": i % 3 == 0, "sizes": [0, i, i / 7]}
        for i in range(40)
    ]
    examples = [{"features": row, "survived": i % 2} for i, row in enumerate(rows)]
    data_dir = prepared({"features": TABLE, "survived": CLASS}, {"train": examples[:30], "test": examples[30:]})
    manifest = convert(options(data_dir, SCHEMA))
    assert manifest.name == "people" and manifest.class_names == ("no", "yes")
    assert {encoding.columns[0]: encoding.kind for encoding in manifest.deep} == {
        "age": "numeric",
        "home": "vocabulary",
    }
    spec = {feature.name: tf.io.FixedLenFeature([], feature.dtype) for feature in manifest.features}
    for split in ("train", "test"):
        ours, theirs = parsed(data_dir.parent / "out", split, spec), read(data_dir, split)
        for one, other in zip(ours, theirs, strict=True):
            row = other["features"]
            expected = {"home": row["home.dest"], "last": np.float32(row["sizes"][2]), "age": np.float32(row["age"])}
            expected |= {name: row[name] for name in ("born", "alone")}
            assert one == expected | dict.fromkeys(("label", "survived"), other["survived"])


def test_images_with_targets_of_a_schema(prepared):
    features = {
        "image": tfds.features.Image(shape=(3, 4, 1)),
        "age": tfds.features.Scalar(np.float64),
        "sex": CLASS,
    }
    examples = [{"image": np.full((3, 4, 1), i, np.uint8), "age": i / 3, "sex": 0} for i in range(9)]
    data_dir = prepared(features, {"train": examples}, ("image", "age"))
    schema = "{name: faces, origin: made up, image: image, label: {regression: age}}"
    manifest = convert(options(data_dir, schema))
    assert (manifest.task, manifest.targets, manifest.class_names) == ("regression", ("age",), ())
    spec = {"label": tf.io.FixedLenFeature([], tf.float32)}
    ours = [record["label"] for record in parsed(data_dir.parent / "out", "train", spec)]
    assert ours == [np.float32(example["age"]) for example in read(data_dir, "train")]


def image(**options) -> tfds.features.Image:
    return tfds.features.Image(shape=(2, 2, 1), **options)


PIXEL = np.zeros((2, 2, 1), np.uint8)
NUMBER = tfds.features.Scalar(np.int64)


@pytest.mark.parametrize(
    ("features", "example", "supervised", "listed"),
    [
        ({"x": NUMBER}, {"x": 1}, None, "x: Scalar(shape=(), dtype=int64)"),
        (
            {"x": {"a": tfds.features.Tensor(shape=(2,), dtype=np.float32)}, "y": CLASS},
            {"x": {"a": [1, 2]}, "y": 1},
            ("x", "y"),
            "x/a: Tensor(shape=(2,), dtype=float32), y: ClassLabel(shape=(), dtype=int64, num_classes=2)",
        ),
        (
            {"x": image(dtype=np.uint16), "y": CLASS},
            {"x": PIXEL.astype(np.uint16), "y": 1},
            ("x", "y"),
            "x: Image(shape=(2, 2, 1), dtype=uint16), y: ClassLabel(",
        ),
        ({"x": image(), "y": CLASS, "z": image()}, {"x": PIXEL, "y": 1, "z": PIXEL}, None, "x: Image("),
        ({"x": image(), "y": CLASS, "z": NUMBER}, {"x": PIXEL, "y": 1, "z": 1}, ("x", "z"), "z: Scalar("),
    ],
    ids=["no label", "table", "16 bits", "two images", "a number is predicted"],
)
def test_features_are_listed_without_a_schema(prepared, fails, features, example, supervised, listed):
    data_dir = prepared(features, {"train": [example] * 3}, supervised)
    line = fails("--dataset", "tfds:tiny", "--source", data_dir, "--output", data_dir.parent / "out")
    assert "dataset 'tfds:tiny' needs --schema FILE, of a table or of images" in line and listed in line
    assert not (data_dir.parent / "out").exists()


def test_supervised_keys_choose_image_and_label(prepared):
    features = {"image": image(), "mask": image(), "coarse": tfds.features.ClassLabel(num_classes=5), "fine": CLASS}
    examples = [{"image": PIXEL, "mask": PIXEL + 1, "coarse": i, "fine": i % 2} for i in range(5)]
    data_dir = prepared(features, {"train": examples}, ("mask", "fine"))
    assert convert(options(data_dir)).class_names == ("no", "yes")
    assert {record["image"] for record in parsed(data_dir.parent / "out", "train", IMAGE)} == {(PIXEL + 1).tobytes()}


@pytest.mark.parametrize("names", [("test",), ("train", "val", "dev")])
def test_splits_that_are_not_clear_are_named(prepared, fails, names):
    examples = [{"x": PIXEL, "y": i % 2} for i in range(3)]
    data_dir = prepared({"x": image(), "y": CLASS}, dict.fromkeys(names, examples))
    line = fails("--dataset", "tfds:tiny", "--source", data_dir, "--output", data_dir.parent / "out")
    assert f"needs examples in one split train, and at most one each of validation and test; it has {names[0]}" in line


def test_files_of_a_publisher_are_prepared_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "none"))
    root = tmp_path / "in" / "CheXpert-v1.0-small"
    for split in ("train", "valid"):
        (root / split).mkdir(parents=True)
        (root / split / "1.jpg").write_bytes(file(PIXELS, "JPEG"))
        row = f"{root.name}/{split}/1.jpg,F,1,Lateral,AP,1.0"
        (root / f"{split}.csv").write_text(f"Path,Sex,Age,Frontal/Lateral,AP/PA,Edema\n{row}\n")
    schema = tmp_path / "schema.yaml"
    schema.write_text("{name: x, origin: x, image: image, label: image_view, classes: [front, side]}")
    flags = {"dataset": "tfds:chexpert", "source": str(tmp_path / "in"), "schema": str(schema), "test_fraction": 0}
    manifests = [convert(Options(**flags, output=str(tmp_path / name))) for name in ("one", "two")]
    assert manifests[0] == manifests[1] and manifests[0].splits["validation"].class_histogram == (0, 1)
    assert capsys.readouterr().out.count("TensorFlow Datasets prepares chexpert/") == 1


def test_digest_follows_the_schema(prepared):
    data_dir = prepared({"x": image(), "y": CLASS}, {"train": [{"x": PIXEL, "y": 0}]})
    digests = []
    for text in ("a", "b"):
        schema = options(data_dir, text).schema
        digests += [source_digest("tfds:tiny", str(data_dir), schema), source_digest("tfds:mnist", None, schema)]
    assert len({*digests}) == 4


def test_a_damaged_file_and_a_wrong_name_are_told_and_the_digest_is_of_the_files(
    prepared, fails, tmp_path, bucket, bytes_read, monkeypatch
):
    examples = [{"x": PIXEL + i, "y": i % 2} for i in range(9)]
    data_dir = prepared({"x": image(), "y": CLASS}, {"train": examples})
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
        ("tfds:titanic", "needs --schema FILE"),
        ("tfds:mnist --schema no.yaml", "no.yaml: cannot be read"),
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
