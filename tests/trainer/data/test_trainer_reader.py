import os
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numbered import damage, dataset, picture

from common.errors import UserError
from common.manifest import Manifest
from trainer.data.order import batch_indices
from trainer.data.placement import Choice, provide_files
from trainer.data.reader import Reader, open_reader

EXAMPLES = 300  # labels of more than seven bits


def opened(directory: pathlib.Path, mode: str, batch: int) -> Reader:
    place = Choice(str(directory), mode, "", None)
    return open_reader(place, Manifest.load(directory), global_batch=batch, seed=5, prepare=dict)


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    directory = tmp_path_factory.mktemp("numbered") / "data"
    dataset(directory, EXAMPLES)
    return directory


@settings(max_examples=settings.default.max_examples // 6)
@given(steps=st.lists(st.integers(0, 10**6), min_size=1, max_size=3), batch=st.integers(1, 50))
def test_readers_give_the_same_batches(numbered, steps, batch):
    """Every reader gives, at any step, the batch of the order."""
    order = {"examples": EXAMPLES, "seed": 5, "global_batch": batch, "first": 0, "count": batch}
    for mode in ("resident", "mapped"):
        reader = opened(numbered, mode, batch)
        for step in steps:
            labels = batch_indices(step, **order).numpy()
            columns = reader.batch(reader.load(), tf.constant(step, tf.int64), 0, batch)
            np.testing.assert_array_equal(columns["label"], labels)
            pixels = columns["image"].numpy().reshape(batch, 6)
            np.testing.assert_array_equal(pixels[:, 0] + 256 * pixels[:, 1].astype(int), labels)
            assert not pixels[:, 2:].any()


def test_damaged_record_is_error(tmp_path):
    manifest = dataset(tmp_path / "data", 24, files=[picture(4, 30)] * 24)
    reader = opened(tmp_path / "data", "mapped", 24)
    loaded = reader.load()
    damage(tmp_path / "data" / manifest.split("train").shards[1].file, -9)
    with pytest.raises(tf.errors.DataLossError, match="corrupted record"):
        reader.batch(loaded, tf.constant(0), 0, 24)


@pytest.mark.parametrize("cache", [None, "cache"])
def test_exchanged_files_are_error(tmp_path, cache):
    """Two files of one size, each with the other's name, are noticed without reading all of them.

    When a job starts, and between that and the opening of the files.
    """
    manifest = dataset(tmp_path / "data", 39, shape=(64, 64, 3))
    choice = Choice(str(tmp_path / "data"), "mapped", "", cache and str(tmp_path / cache))
    place = provide_files(choice, manifest)
    one, *_, other = sorted(pathlib.Path(place.data_dir).glob("train-*.tfrecord"))
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    for provide in (lambda: provide_files(choice, manifest), lambda: place):
        with pytest.raises(UserError, match=r"train-0000[02]\S+ is not the file that the manifest"):
            open_reader(provide(), manifest, global_batch=9, seed=0, prepare=dict)


def anonymous_bytes(pid: int) -> int:
    """Memory of a process that no file stands behind."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"RssAnon:\s+(\d+) kB", status)[1])


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="RssAnon is Linux's")
def test_large_split_trains_in_little_memory(make, tmp_path):
    manifest = dataset(tmp_path / "large", 200_000, shards=8, shape=(32, 32, 3), classes=10)
    size = sum(shard.bytes for shard in manifest.split("train").shards)
    peaks = {}
    for reader in ("resident", "mapped"):
        job, used = make(data=tmp_path / "large"), [0]
        flags = "--model numbered:network --batch-size 1000 --train-steps 600 --reader"
        job.start("chief", flags=f"{flags} {reader}")

        def watched(job=job, used=used) -> bool:
            used.append(anonymous_bytes(job.pid("chief-0")))
            return max(job.steps("step"), default=0) >= 250  # More than an epoch.

        job.until(watched)
        peaks[reader] = max(used)
    assert peaks["mapped"] < peaks["resident"] - size / 2, (peaks, size)
