import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.data.order import batch_indices, share


def steps(count, batch, *, examples, seed=0):
    order = {"examples": examples, "seed": seed, "global_batch": batch, "first": 0, "count": batch}
    return np.concatenate([batch_indices(step, **order).numpy() for step in range(count)])


@settings(max_examples=settings.default.max_examples // 8)
@given(
    examples=st.integers(1, 60),
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(1, 70),
    epochs=st.integers(1, 3),
)
def test_every_epoch_is_permutation(examples, seed, batch, epochs):
    """Every example comes once in each epoch, whatever the batch."""
    indices = steps(-(-examples * epochs // batch), batch, examples=examples, seed=seed)
    for epoch in np.split(indices[: epochs * examples], epochs):
        assert sorted(epoch) == list(range(examples))


def test_order_is_that_of_earlier_versions():
    """Each epoch, and each seed, has an order of its own."""
    indices = [6, 1, 4, 5, 2, 0, 3, 6, 5, 4, 2, 1, 0, 3, 6, 2]
    assert steps(2, 8, examples=7, seed=7).tolist() == indices


@settings(max_examples=settings.default.max_examples // 8)
@given(replicas=st.integers(1, 7), batch=st.integers(7, 64), step=st.integers(0, 10**6))
def test_order_is_independent_of_replicas(replicas, batch, step):
    """The parts of all replicas are the batch of one, and differ by one example at most."""
    order = {"examples": 1000, "seed": 0, "global_batch": batch}
    shares = [share(r, replicas=replicas, global_batch=batch) for r in range(replicas)]
    parts = [batch_indices(step, **order, first=first, count=count) for first, count in shares]
    whole = batch_indices(step, **order, first=0, count=batch)
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
