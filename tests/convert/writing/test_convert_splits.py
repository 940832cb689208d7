import numpy as np
import pytest
from divided import drawn
from hypothesis import given
from hypothesis import strategies as st

from components.convert.writing.splits import splitmix64

fractions = st.floats(0, 1, exclude_max=True)
seeds = st.integers(0, 2**64 - 1)


def test_splitmix64_gives_the_published_numbers():
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert splitmix64(1234567, np.arange(4)).tolist() == expected


@given(train=st.integers(1, 2000), more=st.integers(0, 2000), validation=fractions, test=fractions, seed=seeds)
def test_every_example_is_in_one_split_in_order_and_stays_when_the_source_grows(train, more, validation, test, seed):
    small, large = (
        drawn(size, validation_fraction=validation, test_fraction=test, seed=seed) for size in (train, train + more)
    )
    assert sorted(np.concatenate([*small.values()]).tolist()) == list(range(train))
    for split, rows in small.items():
        grown = large[split]
        np.testing.assert_array_equal(rows, grown[grown < train])


def test_a_raised_fraction_only_adds_and_the_two_choices_are_independent():
    count = 50_000

    def chosen(split, seed=0, **fraction):
        both = {"validation_fraction": 0, "test_fraction": 0, **fraction}
        return set(drawn(count, seed=seed, **both)[split].tolist())

    test, validation = chosen("test", test_fraction=0.2), chosen("validation", validation_fraction=0.2)
    assert test < chosen("test", test_fraction=0.3)
    for other in (validation, chosen("test", seed=1, test_fraction=0.2)):
        assert len(test & other) == pytest.approx(count * 0.04, rel=0.1)
