"""Two whole files of equal size in each other's place are found in every way of reading, without reading all of them."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UserError
from common.manifest import HEAD_BYTES, Manifest
from components.convert.convert import convert
from components.convert.options import Options
from trainer.data.placement import choose, provide_files
from trainer.data.reader import open_reader

COPIED = {"wish": "mapped", "cache_dir": "cache"}
WAYS = ({"wish": "resident"}, {"wish": "mapped"}, COPIED)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Training shards of one size, which is more than the head's."""
    directory = tmp_path_factory.mktemp("whole") / "data"
    manifest = convert(Options(output=str(directory), shards=3, validation_fraction=0, test_fraction=0))
    (size,) = {shard.bytes for shard in manifest.split("train").shards}
    assert size > HEAD_BYTES
    return directory


@pytest.fixture
def data(whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(whole, tmp_path / "data")


def exchange(directory) -> str:
    one, *_, other = sorted(directory.glob("train-*.tfrecord"))
    one.rename(directory / "aside")
    other.rename(one)
    (directory / "aside").rename(other)
    return r"train-0000[02]\.tfrecord is not the file that the manifest lists"


def train(data, way) -> np.ndarray:
    """All labels of an epoch, as a replica of a job gets them."""
    manifest = Manifest.load(data)
    place = provide_files(choose(manifest, data_dir=str(data), budget_bytes=1e9, **way), manifest)
    count = manifest.split("train").examples
    reader = open_reader(place, manifest, global_batch=count, seed=0, prepare=dict)
    return reader.batch(reader.load(), tf.constant(0, tf.int64), 0, count)["label"].numpy()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: " ".join(way.values()))
def test_exchanged_files_are_refused_and_named(data, way):
    train(data, way)
    shutil.rmtree("cache", ignore_errors=True)
    message = exchange(data)
    with pytest.raises(UserError, match=message):
        train(data, way)


def test_exchanged_copies_are_refused_too(data):
    labels = train(data, COPIED)
    (copies,) = (data.parent / "cache").iterdir()
    message = exchange(copies)
    with pytest.raises(UserError, match=message):
        train(data, COPIED)
    exchange(copies)
    assert np.array_equal(train(data, COPIED), labels)
