import functools

import psutil
import pytest
import tensorflow as tf
from numbered import dataset, provided, reader_of

from tests.errors import user_error


@pytest.mark.parametrize("cache", [None, "cache"])
def test_exchanged_files_are_error(tmp_path, cache):
    """Two files of one size, each with the other's name, are noticed without reading all of them.

    When a job starts, and between that and the opening of the files.
    """
    manifest = dataset(tmp_path / "data", 39, size=(64, 64))
    provide = functools.partial(provided, manifest, tmp_path / "data", cache and tmp_path / cache)
    place = provide()
    one, *_, other = sorted(place.glob("train-*.tfrecord"))
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    for directory in (lambda: place, provide):
        with user_error(r"train-0000[02]\S+ is not the file that the manifest"):
            reader_of(manifest, directory(), "mapped", 9)


@pytest.mark.cluster
def test_mapped_split_takes_little_memory(tmp_path):
    manifest = dataset(tmp_path / "data", 60_000, size=(64, 48), classes=10)
    size = sum(shard.bytes for shard in manifest.split("train").shards)
    taken = {}
    for mode in ("mapped", "resident"):
        before = psutil.Process().memory_info()
        reader = reader_of(manifest, tmp_path / "data", mode, 1000)
        loaded = reader.load()
        for step in range(60):
            reader.batch(loaded, tf.constant(step, tf.int64), 0, 1000)
        after = psutil.Process().memory_info()
        # What no file stands behind.
        taken[mode] = after.rss - after.shared - before.rss + before.shared
    assert taken["mapped"] < size / 2 < taken["resident"], (taken, size)
