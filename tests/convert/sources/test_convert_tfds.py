"""What TensorFlow and TensorFlow Datasets make of the same files; together, for importing them takes seconds."""

import dataclasses
import io
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from opened import read_all
from PIL import Image

from common.errors import UserError
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources import images
from components.convert.sources import tfds as source
from components.convert.sources.registry import source_digest
from components.convert.sources.tfds import TfdsSource

pytestmark = pytest.mark.cluster

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (20, 30, 4), np.uint8)
TINY = TfdsSource(name="tfds:tiny")


def file(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("pixels", "channels"), [(PIXELS, 3), (PIXELS[..., 0].astype(np.uint16) * 256 + 255, 1)]
)
def test_tensorflow_decodes_same_pixels(pixels, channels):
    ours = images.decode(file(pixels), "", channels=channels, size=(20, 30))
    np.testing.assert_array_equal(ours, tf.io.decode_image(file(pixels), channels=channels))


@pytest.fixture
def prepared(tmp_path):
    """Has TensorFlow Datasets prepare `tiny` of these features and examples; returns its data directory."""

    def make(features, splits, supervised=None):
        class Tiny(tfds.core.GeneratorBasedBuilder, skip_registration=True):
            """Examples that need no generator."""

            VERSION = tfds.core.Version("1.2.3")

            def _info(self):
                described = tfds.features.FeaturesDict(features)
                return tfds.core.DatasetInfo(
                    builder=self, features=described, supervised_keys=supervised
                )

            def _split_generators(self, manager):
                return {name: enumerate(examples) for name, examples in splits.items()}

            def _generate_examples(self):
                raise NotImplementedError

        tfds.disable_progress_bar()
        Tiny(data_dir=tmp_path / "tfds").download_and_prepare()
        return tmp_path / "tfds"

    return make


def read(data_dir: pathlib.Path, split: str):
    """Returns the examples as TensorFlow Datasets itself reads them, in the order of the files."""
    config = tfds.ReadConfig(interleave_cycle_length=1)
    builder = tfds.builder_from_directory(data_dir / "tiny" / "1.2.3")
    return list(tfds.as_numpy(builder.as_dataset(split, read_config=config)))


CLASS = tfds.features.ClassLabel(names=["no", "yes"])


def image(**options) -> tfds.features.Image:
    return tfds.features.Image(shape=(2, 2, 1), **options)


def test_supervised_images_equal_tfds(prepared):
    features = {
        "image": image(),
        "label": CLASS,
        "mask": image(),
        "coarse": CLASS,
        "box": tfds.features.BBoxFeature(),
    }
    splits = {
        name: [
            {
                "image": RANDOM.integers(0, 256, (2, 2, 1), np.uint8),
                "label": i % 2,
                "mask": np.zeros((2, 2, 1), np.uint8),
                "coarse": 0,
                "box": tfds.features.BBox(0.0, 0.0, 1.0, 1.0),
            }
            for i in range(count)
        ]
        for name, count in (("train", 20), ("val", 6), ("test", 4), ("unlabelled", 3))
    }
    data_dir = prepared(features, splits, ("image", "label"))
    opened = read_all(TINY, str(data_dir))
    assert (opened.examples.name, opened.examples.class_names) == ("tfds:tiny", ("no", "yes"))
    assert (
        opened.examples.arguments == {"schema": {"tfds": "1.2.3"}}
        and "tiny/1.2.3" in opened.examples.origin
    )
    assert [*opened.splits] == ["train", "validation", "test"]
    for columns, native in zip(opened.splits.values(), ("train", "val", "test"), strict=True):
        theirs = read(data_dir, native)
        for name in ("image", "label"):
            assert columns[name].tolist() == [example[name].tolist() for example in theirs]


TABLE = {
    "age": tfds.features.Scalar(np.float64),
    "born": tfds.features.Scalar(np.int32),
    "home.dest": tfds.features.Text(),
    "alone": tfds.features.Scalar(np.bool_),
    "sizes": tfds.features.Tensor(shape=(3,), dtype=np.float64),
}
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


def test_table_equals_tfds(prepared, tmp_path):
    rows = [
        {
            "age": i / 3,
            "born": i - 5,
            "home.dest": "x" * i,
            "alone": i % 3 == 0,
            "sizes": [0, i, i / 7],
        }
        for i in range(40)
    ]
    examples = [{"features": row, "survived": i % 2} for i, row in enumerate(rows)]
    data_dir = prepared(
        {"features": TABLE, "survived": CLASS}, {"train": examples[:30], "test": examples[30:]}
    )
    with pytest.raises(
        UserError, match=r"features are features/age: Scalar.*, survived: ClassLabel\(shape=\(\), "
    ):
        read_all(TINY, str(data_dir))
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    opened = read_all(
        dataclasses.replace(TINY, schema=str(tmp_path / "schema.yaml")), str(data_dir)
    )
    for split, columns in opened.splits.items():
        theirs = read(data_dir, split)
        values = {name: [row["features"][name] for row in theirs] for name in TABLE}
        survived = [row["survived"] for row in theirs]
        assert {name: column.tolist() for name, column in columns.items()} == {
            "age": np.float32(values["age"]).tolist(),
            "last": np.float32(values["sizes"])[:, 2].tolist(),
            "home": values["home.dest"],
            "born": values["born"],
            "alone": values["alone"],
            "survived": survived,
            "label": survived,
        }


@pytest.mark.parametrize(
    ("features", "supervised"),
    [
        ({"x": image(dtype=np.uint16), "y": CLASS}, ("x", "y")),
        ({"x": image(), "y": CLASS, "z": image()}, None),
        ({"x": image(), "y": CLASS, "z": tfds.features.Scalar(np.int64)}, ("x", "z")),
    ],
    ids=["16 bits", "two images", "number"],
)
def test_missing_schema_lists_features(prepared, features, supervised):
    example = {
        name: np.zeros(feature.shape, feature.np_dtype) for name, feature in features.items()
    }
    data_dir = prepared(features, {"train": [example]}, supervised)
    with pytest.raises(
        UserError,
        match=r"needs --schema FILE, of a table or of images.*are x: Image\(.*, y: ClassLab",
    ):
        read_all(TINY, str(data_dir))


@pytest.fixture
def small(prepared):
    """Prepares images with classes, with splits of these names."""

    def make(*names: str) -> pathlib.Path:
        examples = [{"x": np.full((2, 2, 1), i, np.uint8), "y": i % 2} for i in range(9)]
        return prepared({"x": image(), "y": CLASS}, dict.fromkeys(names, examples))

    return make


@pytest.mark.parametrize("names", [("test",), ("train", "val", "dev")])
def test_unclear_splits_are_refused(small, names):
    with pytest.raises(
        UserError, match=f"one split train, and at most one each of .*; it has {names[0]}"
    ):
        read_all(TINY, str(small(*names)))


def test_publisher_files_are_prepared_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "none"))
    root = tmp_path / "in" / "CheXpert-v1.0-small"
    for split in ("train", "valid"):
        (root / split).mkdir(parents=True)
        (root / split / "1.jpg").write_bytes(file(PIXELS[..., :3], "JPEG"))
        row = f"{root.name}/{split}/1.jpg,F,1,Lateral,AP,1.0"
        (root / f"{split}.csv").write_text(f"Path,Sex,Age,Frontal/Lateral,AP/PA,Edema\n{row}\n")
    (tmp_path / "schema.yaml").write_text(
        "{name: x, origin: x, image: image, label: image_view, classes: [front, side]}"
    )
    chexpert = TfdsSource(name="tfds:chexpert", schema=str(tmp_path / "schema.yaml"))
    for _ in range(2):
        assert read_all(chexpert, str(tmp_path / "in")).splits["validation"]["label"].tolist() == [
            1
        ]
    assert capsys.readouterr().out.count("TensorFlow Datasets prepares chexpert/") == 1


def test_damaged_or_other_dataset_is_named(small):
    (directory,) = (small("train") / "tiny").iterdir()
    digest = source_digest("tfds:tiny", str(directory))
    assert source_digest("tfds:tiny", str(directory.parents[1])) == digest
    with pytest.raises(UserError, match=r"holds tfds:tiny/1\.2\.3, not tfds:other"):
        read_all(TfdsSource(name="tfds:other"), str(directory))
    (path,) = directory.glob("*.tfrecord*")
    data = path.read_bytes()
    for damaged in (data[:-1], data[:5], data[:20] + b"x" + data[21:], b"x" + data[1:]):
        path.write_bytes(damaged)
        assert source_digest("tfds:tiny", str(directory)) != digest
        with pytest.raises(UserError, match=f"{path}: damaged"):
            read_all(TINY, str(directory))
    path.unlink()
    with pytest.raises(FileNotFoundError, match=str(path)):
        read_all(TINY, str(directory))


def test_mounted_bucket_is_read(small, tmp_path, bucket, bytes_read, monkeypatch):
    data_dir = small("train")
    shutil.copytree(data_dir, bucket / "tfds")
    monkeypatch.setattr(
        source, "_MOUNT", bucket.parent
    )  # Steps on Vertex AI see all buckets below /gcs.
    manifests = [
        convert(Options(dataset="tfds:tiny", source=place, output=str(tmp_path / name)))
        for name, place in (("here", str(data_dir)), ("there", "gs://demo/tfds"))
    ]
    assert manifests[0] == manifests[1]
    (bucket / "tfds" / "more").write_text("more")
    num_bytes, before = bytes_read(), source_digest("tfds:tiny", "gs://demo/tfds")
    (bucket / "tfds" / "more").write_text("other")
    assert before != source_digest("tfds:tiny", "gs://demo/tfds") and bytes_read() == num_bytes


def test_published_digest_needs_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    (tmp_path / "schema.yaml").write_text("a")
    names = ("tfds:mnist", "tfds:mnist:3.0.1", "tfds:kmnist")
    digests = [source_digest(name, None) for name in names]
    digests.append(source_digest("tfds:mnist", None, str(tmp_path / "schema.yaml")))
    assert digests[0] == digests[1] and len({*digests}) == 3


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("tfds:mnits", "unknown dataset of TensorFlow Datasets 'mnits'; did you mean 'mnist'"),
        ("tfds:mnist:9.9.9", "cannot be loaded at version 9.9.9, only: 3.0.1"),
        ("tfds:imagenet2012", "cannot be downloaded; get its files and give --source DIR"),
        ("tfds:titanic", "needs --schema FILE"),
        ("tfds:mnist --schema no.yaml", "no.yaml: cannot be read"),
        (
            "tfds:mnist --source .",
            "holds neither tfds:mnist prepared nor all its files (missing t10k-images-idx3",
        ),
        ("tfds:mnist", "cannot reach storage.googleapis.com"),
    ],
)
def test_unavailable_dataset_is_refused(tmp_path, fails, monkeypatch, flags, message):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)
    assert message in fails("--dataset", *flags.split(), "--output", tmp_path / "out")
    assert not list(tmp_path.iterdir())
