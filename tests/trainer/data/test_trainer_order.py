import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.manifest import Shard, Split
from trainer.data.order import CHUNK_BYTES, WINDOW_BYTES, Order, share

SIZES = {"examples": st.integers(1, 60), "chunk": st.integers(1, 9), "window": st.integers(1, 5)}
ORDERS = st.builds(Order, seed=st.integers(0, 2**31), **SIZES)


def steps(order: Order, count: int, batch: int) -> np.ndarray:
    return np.concatenate([order(step, global_batch=batch, first=0, count=batch).numpy() for step in range(count)])


@settings(max_examples=settings.default.max_examples // 8)
@given(order=ORDERS, batch=st.integers(1, 70), epochs=st.integers(1, 3))
def test_every_epoch_is_a_permutation_of_the_split(order, batch, epochs):
    seen = steps(order, -(-order.examples * epochs // batch), batch)
    for epoch in range(epochs):
        part = seen[epoch * order.examples : (epoch + 1) * order.examples]
        assert sorted(part) == list(range(order.examples))


@settings(max_examples=settings.default.max_examples // 8)
@given(order=ORDERS)
def test_window_holds_whole_chunks(order):
    """A window's part of an epoch consists of all examples of at most `window` chunks, and windows follow one another."""
    epoch = steps(order, 1, order.examples)
    position = windows = 0
    while position < len(epoch):
        for end in range(position + 1, len(epoch) + 1):  # the shortest part that is made of whole chunks
            chunks = np.unique(epoch[position:end] // order.chunk)
            if end - position == sum(min(order.chunk, order.examples - chunk * order.chunk) for chunk in chunks):
                break
        assert len(chunks) <= order.window
        position, windows = end, windows + 1
    assert windows >= order.windows


@pytest.mark.parametrize(
    "order", [Order(examples=20_000, seed=0, chunk=20_000), Order(examples=4_000, seed=0, chunk=10, window=128)]
)
def test_no_epoch_resembles_another_or_that_of_another_seed(order):
    epochs = np.stack(
        [*steps(order, 7, order.examples).reshape(7, -1), steps(dataclasses.replace(order, seed=1), 1, order.examples)]
    )
    correlations = np.corrcoef(epochs) - np.eye(8)
    # Examples of a chunk stay near each other, so that there are as many free choices as chunks.
    assert np.abs(correlations).max() < 5 / np.sqrt(order.chunks if order.windows > 1 else order.examples)


def test_within_a_window_nothing_is_left_of_the_source():
    order = Order(examples=20_000, seed=3, chunk=50, window=100)
    seen = steps(order, 1, order.examples)
    window = seen[: order.window * order.chunk]
    assert abs(np.corrcoef(window[:-1], window[1:])[0, 1]) < 5 / np.sqrt(len(window))
    assert len(np.unique(window[:256] // order.chunk)) > 80


@settings(max_examples=settings.default.max_examples // 8)
@given(replicas=st.integers(1, 7), batch=st.integers(7, 64), step=st.integers(0, 10**6), chunk=st.integers(20, 1000))
def test_the_order_does_not_depend_on_the_number_of_replicas(replicas, batch, step, chunk):
    order = Order(examples=1000, seed=0, chunk=chunk, window=4)
    whole = order(step, global_batch=batch, first=0, count=batch).numpy()
    shares = [share(r, replicas=replicas, global_batch=batch) for r in range(replicas)]
    parts = [order(step, global_batch=batch, first=first, count=count).numpy() for first, count in shares]
    assert np.array_equal(np.concatenate(parts), whole)
    counts = [count for _, count in shares]
    assert max(counts) - min(counts) <= 1


def test_sizes_follow_from_the_manifest_and_small_splits_are_one_window():
    def order(examples: int, record_bytes: int) -> Order:
        unread = dict.fromkeys(("file", "crc32c", "head_crc32c", "hashes", "hashes_crc32c"), "")
        shard = Shard(examples=examples, bytes=examples * record_bytes, **unread)
        return Order.of(Split(examples=examples, class_histogram=(), shards=(shard,)), seed=0)

    assert order(60_000, 838).windows == 1
    large = order(1_281_167, 110_000)
    assert large.chunk == CHUNK_BYTES // 110_000
    assert large.windows == -(-large.chunks * CHUNK_BYTES // WINDOW_BYTES)
    assert order(3, 50_000_000).chunk == 1
