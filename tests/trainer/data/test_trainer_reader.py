import pathlib
import shutil

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

EXAMPLES, FILES = 300, 24  # labels of more than seven bits


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    directory = tmp_path_factory.mktemp("numbered") / "data"
    dataset(directory, EXAMPLES)
    return directory


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("files") / "data"
    dataset(directory, FILES, files=[picture(4 + i, 30 - i, seed=i) for i in range(FILES)])
    return directory


def opened(directory, mode: str, batch: int) -> Reader:
    place = Choice(str(directory), mode, "", None)
    return open_reader(place, Manifest.load(directory), global_batch=batch, seed=5, prepare=dict)


def labels_of(step: int, batch: int, *, examples: int = EXAMPLES) -> np.ndarray:
    """Returns the labels of a global batch, which are the positions of the examples."""
    return batch_indices(
        step, examples=examples, seed=5, global_batch=batch, first=0, count=batch
    ).numpy()


@settings(max_examples=settings.default.max_examples // 6)
@given(steps=st.lists(st.integers(0, 10**6), min_size=1, max_size=3), batch=st.integers(1, 50))
def test_readers_give_the_same_batches(numbered, steps, batch):
    """Every reader gives, at any step, the batch of the order."""
    for mode in ("resident", "mapped"):
        reader = opened(numbered, mode, batch)
        for step in steps:
            labels = labels_of(step, batch)
            columns = reader.batch(reader.load(), tf.constant(step, tf.int64), 0, batch)
            np.testing.assert_array_equal(columns["label"], labels)
            pixels = columns["image"].numpy().reshape(batch, 6)
            np.testing.assert_array_equal(pixels[:, 0] + 256 * pixels[:, 1].astype(int), labels)
            assert not pixels[:, 2:].any()


def test_readers_give_the_same_files(files):
    resident, mapped = (opened(files, mode, 10) for mode in ("resident", "mapped"))
    for step in (0, 3, 10**6):
        expected, columns = (
            tf.function(reader.batch)(reader.load(), tf.constant(step), 3, 5)
            for reader in (resident, mapped)
        )
        np.testing.assert_array_equal(columns["label"], labels_of(step, 10, examples=FILES)[3:8])
        for name in ("label", "image"):
            np.testing.assert_array_equal(columns[name], expected[name])


def test_damaged_record_is_error(files, tmp_path):
    shutil.copytree(files, tmp_path / "data")
    reader = opened(tmp_path / "data", "mapped", FILES)
    loaded = reader.load()
    damage(tmp_path / "data" / Manifest.load(files).split("train").shards[1].file, -9)
    with pytest.raises(tf.errors.DataLossError, match="corrupted record"):
        reader.batch(loaded, tf.constant(0), 0, FILES)


@pytest.mark.parametrize("mode", ["resident", "mapped"])
@pytest.mark.parametrize("place", ["data", "copies"])
def test_exchanged_files_are_error(tmp_path, mode, place):
    """Two files of equal size, each with the name of the other, are noticed without reading all of them."""
    manifest = dataset(tmp_path / "data", 39, shape=(64, 64, 3))
    choice = Choice(
        str(tmp_path / "data"), mode, "", str(tmp_path / "cache") if place == "copies" else None
    )
    directory = pathlib.Path(provide_files(choice, manifest).data_dir)
    one, *_, other = sorted(directory.glob("train-*.tfrecord"))
    one.rename(directory / "aside")
    other.rename(one)
    (directory / "aside").rename(other)
    for provide in (
        True,
        False,
    ):  # when a job starts, and between that and the opening of the files
        with pytest.raises(
            UserError, match=r"train-0000[02]\S+ is not the file that the manifest lists"
        ):
            provided = (
                provide_files(choice, manifest)
                if provide
                else Choice(str(directory), mode, "", None)
            )
            open_reader(provided, manifest, global_batch=9, seed=0, prepare=dict)


@pytest.mark.cluster
def test_batches_ahead_are_those_of_steps(numbered):
    reader = opened(numbered, "mapped", 12)
    expected = np.concatenate([labels_of(step, 12) for step in (8, 9)])
    context = tf.distribute.InputContext(num_input_pipelines=1, num_replicas_in_sync=3)
    actual = np.concatenate([batch["label"] for batch in reader.dataset(8, context).take(6)])
    np.testing.assert_array_equal(actual, expected)
