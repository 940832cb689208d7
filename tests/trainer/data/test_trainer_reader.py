import shutil

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numbered import dataset, picture

from common.manifest import Manifest
from trainer.data.order import batch_indices
from trainer.data.placement import Choice
from trainer.data.reader import Reader, open_reader

EXAMPLES, FILES = 120, 24


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
    place = Choice(str(directory), mode, "as asked for", None)
    return open_reader(place, Manifest.load(directory), global_batch=batch, seed=5, prepare=dict)


def labels_of(step: int, batch: int, *, examples: int = EXAMPLES) -> np.ndarray:
    """Returns the labels of a global batch, which are the places of the examples."""
    return batch_indices(step, examples=examples, seed=5, global_batch=batch, first=0, count=batch).numpy()


@settings(max_examples=settings.default.max_examples // 6)
@given(steps=st.lists(st.integers(0, 10**6), min_size=1, max_size=3), batch=st.integers(1, 50))
def test_readers_give_the_same_batches(numbered, steps, batch):
    """Every reader gives, at any step, the batch that the order says."""
    readers = [opened(numbered, mode, batch) for mode in ("resident", "mapped")]
    for step in steps:
        labels = labels_of(step, batch)
        for reader in readers:
            columns = reader.batch(reader.load(), tf.constant(step, tf.int64), 0, batch)
            assert np.array_equal(columns["label"], labels)
            assert np.array_equal(columns["image"].numpy().reshape(batch, -1)[:, 0], labels)


def test_image_files_are_the_same_mapped(files):
    resident, mapped = (opened(files, mode, 10) for mode in ("resident", "mapped"))
    for step in (0, 3, 10**6):
        part = (tf.constant(step), 3, 5)
        expected, columns = (tf.function(reader.batch)(reader.load(), *part) for reader in (resident, mapped))
        assert np.array_equal(columns["label"], labels_of(step, 10, examples=FILES)[3:8])
        assert all(np.array_equal(columns[name], expected[name]) for name in ("label", "image"))


def test_damaged_record_is_never_a_batch(files, tmp_path):
    shutil.copytree(files, tmp_path / "data")
    path = tmp_path / "data" / Manifest.load(files).split("train").shards[1].file
    reader = opened(tmp_path / "data", "mapped", FILES)
    loaded = reader.load()
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    with pytest.raises(tf.errors.DataLossError, match="corrupted record"):
        reader.batch(loaded, tf.constant(0), 0, FILES)


@pytest.mark.cluster
def test_batches_ahead_are_those_of_their_steps(numbered):
    reader = opened(numbered, "mapped", 12)
    wanted = np.concatenate([labels_of(step, 12) for step in (8, 9)])
    context = tf.distribute.InputContext(num_input_pipelines=1, num_replicas_in_sync=3)
    seen = np.concatenate([batch["label"].numpy() for batch in reader.dataset(8, context).take(6)])
    assert np.array_equal(seen, wanted)
