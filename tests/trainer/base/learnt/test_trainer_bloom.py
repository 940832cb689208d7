import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainer.base.learnt.bloom import bloom_filter, holds


@given(count=st.integers(1, 3000) | st.just(200_000), parts=st.integers(1, 5), seed=st.integers(0, 99))
def test_every_hash_is_held_and_about_one_other_in_a_hundred(count, parts, seed):
    random = np.random.default_rng(seed)
    hashes, others = (random.integers(0, 2**64, n, np.uint64) for n in (count, 20_000))
    bits = bloom_filter(count, np.array_split(hashes, parts))
    assert holds(bits, hashes).all()
    assert holds(bits, others).mean() < 0.016
    assert bits.nbytes <= 128 + count * 10 // 8
    assert not holds(bloom_filter(0, []), hashes).any()
