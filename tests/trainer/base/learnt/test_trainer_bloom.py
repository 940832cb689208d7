import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainer.base.learnt.bloom import BloomFilter


@given(count=st.integers(1, 3000) | st.just(200_000), parts=st.integers(1, 5), seed=st.integers(0, 99))
def test_every_hash_is_held_and_about_one_other_in_a_hundred(count, parts, seed):
    random = np.random.default_rng(seed)
    hashes, others = (random.integers(0, 2**64, n, np.uint64) for n in (count, 20_000))
    found = BloomFilter.of(count, np.array_split(hashes, parts))
    assert found.holds(hashes).all()
    assert found.holds(others).mean() < 0.016
    assert found.bits.nbytes <= 128 + count * 10 // 8


def test_an_empty_set_holds_nothing():
    assert not BloomFilter.of(0, []).holds(np.arange(1000, dtype=np.uint64)).any()
