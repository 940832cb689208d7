"""Pixels and datasets as TensorFlow and TensorFlow Datasets have them.

They are in one file, for importing them takes seconds.
"""

import shutil

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from dataset_files import convert_to, encode_image, write_files
from opened import read_all
from PIL import Image

from components.convert.sources import images
from components.convert.sources import tfds as source
from components.convert.sources.registry import find_source
from components.convert.sources.tfds import TfdsSource
from tests.errors import user_error

pytestmark = pytest.mark.cluster

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (20, 30, 4), np.uint8)
GRAY = PIXELS[..., 0]
TINY = TfdsSource(name="tfds:tiny")


@pytest.mark.parametrize(
    ("pixels", "channels"),
    [
        (PIXELS, 3),
        (Image.fromarray(PIXELS[..., :3]).quantize(16), 3),
        (GRAY.astype(np.uint16) * 256 + 255, 1),
        (GRAY > 127, 3),
    ],
    ids=["alpha", "palette", "16 bits", "1 bit as colour"],
)
def test_tensorflow_decodes_same_pixels(pixels, channels):
    file = encode_image(pixels)
    ours = images.decode(file, "", channels=channels, size=(20, 30))
    np.testing.assert_array_equal(ours, tf.io.decode_image(file, channels=channels))


@pytest.fixture
def prepared(tmp_path):
    """Prepares `tiny` of features and examples by TensorFlow Datasets; returns its directory."""

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


CLASS = tfds.features.ClassLabel(names=["no", "yes"])
IMAGE = tfds.features.Image(shape=(2, 2, 1))
BLANK = np.zeros((2, 2, 1), np.uint8)


def test_supervised_images_equal_tfds(prepared):
    features = {"image": IMAGE, "label": CLASS, "mask": IMAGE}
    examples = [
        {"image": np.full((2, 2, 1), i, np.uint8), "label": i % 2, "mask": BLANK} for i in range(33)
    ]
    splits = {"train": examples[:20], "val": examples[20:26], "test": examples[26:]}
    data_dir = prepared(features, {**splits, "unlabelled": examples}, ("image", "label"))
    opened = read_all(TINY, str(data_dir))
    assert (opened.examples.name, opened.examples.class_names) == ("tfds:tiny", ("no", "yes"))
    assert [*opened.splits] == ["train", "validation", "test"]
    builder = tfds.builder_from_directory(data_dir / "tiny/1.2.3")
    in_order = tfds.ReadConfig(interleave_cycle_length=1)
    for columns, native in zip(opened.splits.values(), splits, strict=True):
        theirs = [*tfds.as_numpy(builder.as_dataset(native, read_config=in_order))]
        for name in ("image", "label"):
            assert columns[name].tolist() == [example[name].tolist() for example in theirs]


@pytest.mark.parametrize(
    ("other", "supervised"),
    [
        (tfds.features.Image(shape=(2, 2, 1), dtype=np.uint16), ("other", "label")),
        (IMAGE, None),
    ],
    ids=["16 bits", "two images"],
)
def test_other_features_are_listed(prepared, other, supervised):
    features = {"image": IMAGE, "label": CLASS, "other": other}
    example = {name: np.zeros(kind.shape, kind.np_dtype) for name, kind in features.items()}
    data_dir = prepared(features, {"train": [example]}, supervised)
    message = r"is not one 8-bit image with one ClassLabel: .*'image': Image\(.*, 'label': ClassL"
    with user_error(message):
        read_all(TINY, str(data_dir))


@pytest.fixture
def small(prepared):
    """Prepares images with classes, with splits of these names."""

    def make(*names):
        examples = [{"x": np.full((2, 2, 1), i, np.uint8), "y": i % 2} for i in range(9)]
        return prepared({"x": IMAGE, "y": CLASS}, dict.fromkeys(names, examples))

    return make


def test_image_without_class_is_named(prepared):
    example = {"image": BLANK, "label": -1}
    data_dir = prepared({"image": IMAGE, "label": CLASS}, {"train": [example]})
    with user_error("tfds:tiny: image 0 of train: has class -1"):
        read_all(TINY, str(data_dir))


def test_missing_training_split_is_refused(small):
    with user_error("'tfds:tiny' has no training images, but val, test, more"):
        read_all(TINY, str(small("val", "test", "more")))


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The folder where TFDS keeps what it has prepared; nothing can be downloaded."""
    monkeypatch.setenv("TFDS_DATA_DIR", f"{tmp_path}/own")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    return tmp_path / "own"


def test_dataset_is_prepared_once(tmp_path, own, capsys):
    file = encode_image(PIXELS[..., :3], "JPEG")
    write_files(own / "downloads/manual/NWPU-RESISC45/beach", {"1.jpg": file, "2.jpg": file})
    resisc45 = TfdsSource(name="tfds:resisc45", encoding="source")
    for _ in range(2):
        assert resisc45.files(None)
        opened = read_all(resisc45)
        assert opened.splits["train"]["image"].to_pylist() == [file, file]
        names = [opened.examples.class_names[i] for i in opened.splits["train"]["label"]]
        assert names == ["beach", "beach"]
    printed = capsys.readouterr().out
    assert printed.count(f"TensorFlow Datasets prepares resisc45/3.0.0 in {own}/resisc45/") == 1


def test_damaged_or_other_dataset_is_named(small):
    (directory,) = (small("train") / "tiny").iterdir()
    digest = TINY.digest(str(directory))
    with user_error(r"holds tfds:tiny/1\.2\.3"):
        read_all(TfdsSource(name="tfds:other"), str(directory))
    (path,) = directory.glob("*.tfrecord*")
    path.write_bytes(path.read_bytes()[:-1])
    assert TINY.digest(str(directory)) != digest
    with user_error("'tfds:tiny': DataLossError: "):
        read_all(TINY, str(directory))


def test_mounted_bucket_is_read(small, tmp_path, bucket, monkeypatch):
    data_dir = small("train")
    shutil.copytree(data_dir, bucket / "tfds")
    monkeypatch.setattr(
        source, "_MOUNT", f"{bucket.parent}/"
    )  # Vertex AI shows buckets below /gcs.
    here = convert_to(tmp_path / "here", dataset="tfds:tiny", source=data_dir)
    assert convert_to(tmp_path / "there", dataset="tfds:tiny", source="gs://demo/tfds") == here


def test_published_digest_needs_no_network(own):
    names = ("mnist", "tfds:mnist", "tfds:mnist:3.0.1", "tfds:kmnist")
    digests = [find_source(name, None).digest(None) for name in names]
    assert digests[0] == digests[1] == digests[2] != digests[3]


@pytest.mark.parametrize(
    ("flags", "message"),
    {
        "tfds:mnits/x": "TensorFlow Datasets has no such dataset; did you mean 'mnist'",
        "tfds:mnist:9.9.9": "cannot be loaded at version 9.9.9, only: 3.0.1",
        "tfds:imagenet2012": "downloads/manual does not exist or is empty",
        "tfds:iris": "is not one 8-bit image with one ClassLabel",
        "tfds:mnist --source .": ". has no such dataset",
        "tfds:mnist/ --source .": "Parsing builder name string mnist/ failed",
    }.items(),
)
def test_unavailable_dataset_is_refused(tmp_path, fails, own, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    assert message in fails("--dataset", *flags.split(), "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()
