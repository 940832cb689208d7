import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from components.convert.hashes import splitmix64
from components.convert.splits import SPLITS, Splits

fractions = st.floats(0, 1, exclude_max=True)
seeds = st.integers(0, 2**64 - 1)
keys = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=60).map(
    lambda values: np.array(values, np.uint64)
)


def assign(splits: Splits, keys: np.ndarray, **options) -> np.ndarray:
    return splits.assign(keys, **{"native": "train", "natives": {"train"}, **options})


def test_splitmix64_published_numbers():
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert splitmix64(1234567, np.arange(4)).tolist() == expected


@given(old=keys, new=keys, validation=fractions, test=fractions, seed=seeds)
def test_added_records_move_no_other(old, new, validation, test, seed):
    """A record's split depends on its key alone."""
    splits = Splits(validation_fraction=validation, test_fraction=test, seed=seed)
    order = np.random.default_rng(0).permutation(len(old) + len(new))
    both = assign(splits, np.concatenate([old, new])[order])
    assert both[np.argsort(order)][: len(old)].tolist() == assign(splits, old).tolist()


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


def test_native_splits_are_kept():
    keys = splitmix64(7, np.arange(1000))
    natives = {"train", "test"}
    assert set(assign(Splits(), keys, native="test", natives=natives)) == {SPLITS.index("test")}
    assert set(assign(Splits(), keys, natives=natives)) == {
        SPLITS.index("train"),
        SPLITS.index("validation"),
    }


def test_schema_decides_before_hash():
    keys, rows = splitmix64(7, np.arange(100)), np.arange(100)
    late, later = rows >= 70, rows >= 80
    places = assign(
        Splits(validation_fraction=0.5, test_fraction=0.5), keys, assigned={"test": later}
    )
    assert (places[80:] == 2).all() and set(places[:80]) == {0, 1}
    places = assign(Splits(), keys, assigned={"test": later, "validation": late})
    assert places.tolist() == [0] * 70 + [1] * 10 + [2] * 20
    with pytest.raises(UserError, match="the source has its own test"):
        assign(Splits(), keys, natives={"train", "test"}, assigned={"test": later})
