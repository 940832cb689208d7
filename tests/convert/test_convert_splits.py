import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.convert.hashes import splitmix64
from components.convert.splits import Splits

FRACTIONS = st.floats(0, 1, exclude_max=True)
KEYS = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=60)


def assign(splits, keys, natives=("train",), **options):
    keys = np.array(keys, np.uint64)
    return splits.assign(keys, native="train", natives=natives, **options)


def test_splitmix64_published_numbers():
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert splitmix64(1234567, np.arange(4)).tolist() == expected


@given(old=KEYS, new=KEYS, validation=FRACTIONS, test=FRACTIONS, seed=st.integers(0, 2**64 - 1))
def test_added_records_move_no_other(old, new, validation, test, seed):
    """A record's split depends on its key alone."""
    splits = Splits(validation_fraction=validation, test_fraction=test, seed=seed)
    both = assign(splits, new + old)
    assert both[len(new) :].tolist() == assign(splits, old).tolist()


def test_shares_are_fractions():
    """Raising the test fraction keeps all test records, and another seed draws independently."""
    keys = splitmix64(7, np.arange(50_000))
    places, raised, other = (
        assign(Splits(validation_fraction=0.25, test_fraction=test, seed=seed), keys)
        for test, seed in ((0.2, 3), (0.3, 3), (0.2, 4))
    )
    assert np.bincount(places) / len(keys) == pytest.approx([0.6, 0.2, 0.2], abs=0.01)
    assert (raised[places == 2] == 2).all()
    assert ((places == 2) & (other == 2)).mean() == pytest.approx(0.04, rel=0.1)


def test_schema_decides_before_hash():
    keys, rows = splitmix64(7, np.arange(100)), np.arange(100)
    later = {"test": rows >= 80, "validation": rows >= 70}
    places = assign(Splits(), keys, assigned=later)
    assert places.tolist() == [0] * 70 + [1] * 10 + [2] * 20
