import shutil

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numbered import dataset, picture

from common.errors import UserError
from common.manifest import Manifest
from trainer.data import records
from trainer.data.order import Order
from trainer.data.reader import Reader
from trainer.data.shards import MappedRecords, Shards
from trainer.data.storage import Mapped, MappedTensors, Resident

EXAMPLES, FILES = 120, 24
SMALL = Order(examples=EXAMPLES, seed=5, chunk=7, window=4)  # five windows an epoch


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


def storages(directory):
    manifest = Manifest.load(directory)
    shards = Shards(manifest, str(directory), "train")

    def decode(raw):
        return records.decode(raw, manifest)

    yield Resident(lambda: records.resident(manifest, str(directory), "train"))
    yield Mapped(MappedRecords(shards), decode, manifest.record_bytes)
    if manifest.record_bytes:
        yield MappedTensors(shards, decode)


@settings(max_examples=settings.default.max_examples // 6)
@given(
    steps=st.lists(st.integers(0, 10**6), min_size=1, max_size=3), batch=st.integers(1, 50), window=st.integers(1, 9)
)
def test_storages_give_the_same_batches(numbered, steps, batch, window):
    """Every storage gives, at any step, the batch that the order says."""
    order = Order(examples=EXAMPLES, seed=5, chunk=7, window=window)
    readers = [Reader(storage=storage, order=order, global_batch=batch) for storage in storages(numbered)]
    assert len(readers) == 3
    for step in map(tf.constant, steps):
        step = tf.cast(step, tf.int64)
        labels = order(step, global_batch=batch, first=0, count=batch).numpy()
        for reader in readers:
            columns = reader.batch(reader.load(), step, 0, batch)
            assert np.array_equal(columns["label"], labels)
            assert np.array_equal(columns["image"].numpy().reshape(batch, -1)[:, 0], labels)


@pytest.mark.cluster
def test_batches_ahead_are_those_of_their_steps(numbered):
    _, mapped, _ = storages(numbered)
    reader = Reader(storage=mapped, order=SMALL, global_batch=12, ahead=True)
    wanted = np.concatenate([SMALL(step, global_batch=12, first=0, count=12) for step in (8, 9)])
    context = tf.distribute.InputContext(num_input_pipelines=1, num_replicas_in_sync=3)
    seen = np.concatenate([batch["label"].numpy() for batch in reader.dataset(8, context).take(6)])
    assert np.array_equal(seen, wanted)


@pytest.mark.parametrize("kind", ["numbered", "files"])
def test_damaged_record_is_named_when_taken(kind, request, tmp_path):
    shutil.copytree(request.getfixturevalue(kind), tmp_path / "data")
    manifest = Manifest.load(tmp_path / "data")
    shards = Shards(manifest, str(tmp_path / "data"), "train")
    path, bad_row = shards.paths[1], 3
    content = path.read_bytes()
    mapped = MappedRecords(shards)
    bad = int(shards.starts[1]) + bad_row
    sound = np.delete(np.arange(shards.starts[-1]), bad)
    begin, end = shards.offsets[1][bad_row : bad_row + 2].tolist()
    for offset in [*range(begin, begin + 14), end - 1][::3]:
        changed = bytearray(content)
        changed[offset] ^= 64
        path.write_bytes(changed)
        mapped.take(sound)
        with pytest.raises(UserError, match=rf"{path.name} is damaged: record {bad_row} "):
            mapped.take(np.array([0, bad]))
