import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numbered import dataset, picture

from trainer.base.errors import UserError
from trainer.base.manifest import HEAD_BYTES, Manifest
from trainer.data import records
from trainer.data.reader.batches import Reader
from trainer.data.reader.chunks import Chunks
from trainer.data.reader.modes import choose
from trainer.data.reader.order import Order, share
from trainer.data.reader.shards import Mapping, Shards, take
from trainer.data.reader.storage import Chunked, MappedTensors, Resident

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


def storages(directory, order: Order):
    manifest = Manifest.load(directory)
    shards = Shards(manifest, str(directory), "train")
    decode = lambda raw: records.decode(raw, manifest)  # noqa: E731
    yield Resident(lambda: records.resident(manifest, str(directory), "train"))
    for fetch in (Mapping(shards.paths), shards.read):
        yield Chunked(Chunks(shards, order, fetch=fetch, ahead=2), decode, manifest.record_bytes)
    if manifest.record_bytes:
        yield MappedTensors(shards, decode)


@settings(max_examples=settings.default.max_examples // 6)
@given(
    steps=st.lists(st.integers(0, 10**6), min_size=1, max_size=3), batch=st.integers(1, 50), window=st.integers(1, 9)
)
def test_every_way_of_reading_gives_the_same_batches_at_any_step(numbered, steps, batch, window):
    order = Order(examples=EXAMPLES, seed=5, chunk=7, window=window)
    readers = [Reader(storage=storage, order=order, global_batch=batch) for storage in storages(numbered, order)]
    assert len(readers) == 4
    for step in map(tf.constant, steps):
        step = tf.cast(step, tf.int64)
        labels = order(step, global_batch=batch, first=0, count=batch).numpy()
        for reader in readers:
            columns = reader.batch(reader.load(), step, 0, batch)
            assert np.array_equal(columns["label"], labels)
            assert np.array_equal(columns["image"].numpy().reshape(batch, -1)[:, 0], labels)


def test_image_files_are_the_same_bytes_in_every_way(files):
    order = Order(examples=FILES, seed=1, chunk=5, window=2)
    readers = [Reader(storage=storage, order=order, global_batch=10) for storage in storages(files, order)]
    assert len(readers) == 3
    for step in (0, 5):
        batches = [r.batch(r.load(), tf.constant(step, tf.int64), 0, 10)["image"].numpy().tolist() for r in readers]
        assert batches[0] == batches[1] == batches[2]


@pytest.mark.cluster
def test_batches_made_ahead_are_those_of_the_steps_for_all_replicas_in_turn(numbered):
    _, _, streamed, _ = storages(numbered, SMALL)
    reader = Reader(storage=streamed, order=SMALL, global_batch=12, ahead=True)
    wanted = np.concatenate([SMALL(step, global_batch=12, first=0, count=12) for step in (8, 9)])
    context = tf.distribute.InputContext(num_input_pipelines=1, num_replicas_in_sync=3)
    seen = np.concatenate([batch["label"].numpy() for batch in reader.dataset(8, context).take(6)])
    assert np.array_equal(seen, wanted)


def test_each_chunk_is_read_once_an_epoch_in_one_piece_of_each_file_and_few_are_held(numbered):
    shards = Shards(Manifest.load(numbered), str(numbered), "train")
    read, lock, size = [], threading.Lock(), shards.record_bytes
    heads = [(shard, 0, min(HEAD_BYTES, path.stat().length)) for shard, path in enumerate(shards.paths)]

    def fetch(shard: int, start: int, end: int) -> np.ndarray:
        with lock:
            read.append((shard, start, end))
        return shards.read(shard, start, end)

    chunks = Chunks(shards, SMALL, fetch=fetch, ahead=0)
    assert not read
    for step in range(EXAMPLES // 10):
        chunks.take(SMALL(step, global_batch=10, first=0, count=10).numpy(), 10 * step)
        assert len(chunks._held) <= 2 * SMALL.window  # a batch may stand in two windows
        if not step:
            records = [end - start for shard, start, end in read if (shard, start, end) not in heads]
            assert 0 < sum(records) <= 2 * SMALL.window * SMALL.chunk * size
    pieces = [piece for c in range(SMALL.chunks) for piece in shards.pieces(7 * c, min(7 * c + 7, EXAMPLES))]
    assert set(heads) <= set(read)  # two threads that come to a file at once both look whether it is the right one
    assert sorted(r for r in read if r not in heads) == sorted((s, row * size, end * size) for s, row, end in pieces)


@pytest.mark.cluster
@settings(max_examples=settings.default.max_examples // 6)
@given(
    replicas=st.integers(1, 5), batch=st.sampled_from([10, 12, 17]), start=st.integers(0, 30), ahead=st.integers(0, 4)
)
def test_replicas_read_large_records_once_between_them_and_each_gets_those_of_its_share(
    numbered, replicas, batch, start, ahead
):
    shards = Shards(Manifest.load(numbered), str(numbered), "train")
    read, lock, size = [0], threading.Lock(), shards.record_bytes

    def fetch(shard: int, start: int, end: int) -> np.ndarray:
        with lock:
            read[0] += end - start
        return shards.read(shard, start, end)

    for shard in range(3):
        shards.identify(shard, shards.read)
    whole = take(
        shards, [shards.block(*piece, shards.read) for piece in shards.pieces(0, EXAMPLES)], np.arange(EXAMPLES)
    )
    steps = range(start, start + 2 * EXAMPLES // batch)
    orders = [SMALL(step, global_batch=batch, first=0, count=batch).numpy() for step in steps]
    for replica in range(replicas):
        chunks = Chunks(shards, SMALL, fetch=fetch, ahead=ahead)
        first, count = share(replica, replicas=replicas, global_batch=batch)
        chunks.share(first, first + count, batch)
        for step, order in zip(steps, orders, strict=True):
            indices = order[first : first + count]
            assert np.array_equal(chunks.take(indices, step * batch + first), whole[indices])
        chunks._pool.shutdown()
    # Two epochs; beside them, the rest of the first window and of the last one, and what is ahead for each replica.
    assert read[0] <= (2 * EXAMPLES + (2 * SMALL.window + replicas * (ahead + 1)) * SMALL.chunk) * size


@pytest.mark.parametrize(
    ("chunk", "window", "parts", "some"), [(7, 2, 2, True), (7, 9, 2, False), (20, 1, 2, False), (20, 1, 4, True)]
)
def test_only_of_large_records_in_many_windows_those_of_others_are_left_out(numbered, chunk, window, parts, some):
    shards = Shards(Manifest.load(numbered), str(numbered), "train")
    chunks = Chunks(shards, Order(examples=EXAMPLES, seed=0, chunk=chunk, window=window), fetch=shards.read)
    chunks.share(0, 8, 8 * parts)
    assert bool(chunks._share) == some


@pytest.mark.parametrize("kind", ["numbered", "files"])
def test_a_damaged_record_is_named_when_it_is_taken_and_only_then(kind, request, tmp_path):
    shutil.copytree(request.getfixturevalue(kind), tmp_path / "data")
    manifest = Manifest.load(tmp_path / "data")
    shards = Shards(manifest, str(tmp_path / "data"), "train")
    examples = int(shards.starts[-1])
    path = tmp_path / "data" / manifest.split("train").shards[1].file
    whole = path.read_bytes()
    bad_row = 3
    starts = shards.block(1, 0, 5, shards.read).starts
    order = Order(examples=examples, seed=0, chunk=examples)
    indices = order(0, global_batch=examples, first=0, count=examples).numpy()
    bad = int(shards.starts[1]) + bad_row
    offsets = [*range(int(starts[bad_row]), int(starts[bad_row]) + 14), int(starts[bad_row + 1]) - 1]
    for offset in offsets[::3]:
        content = bytearray(whole)
        content[offset] ^= 64
        path.write_bytes(content)
        chunks = Chunks(shards, order, fetch=Mapping(shards.paths))
        position = int(np.flatnonzero(indices == bad)[0])
        chunks.take(np.delete(indices, position)[: examples - 1], 0)
        with pytest.raises(UserError, match=rf"{path.name} is damaged: record {bad_row} "):
            chunks.take(indices, 0)


def test_streaming_from_afar_needs_room_for_its_window(numbered):
    manifest = Manifest.load(numbered)
    place = choose(manifest, data_dir="gs://bucket/data", wish="streaming", budget_bytes=2e8)
    with pytest.raises(UserError, match=r"has 0.20 GB; give --reader-memory-gb 0.5"):
        records.open_reader(place, manifest, global_batch=8, seed=0, prepare=dict)
