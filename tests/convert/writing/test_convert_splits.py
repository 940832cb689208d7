import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.convert.writing import splits
from components.convert.writing.splits import carve, splitmix64

fractions = st.floats(0, 1, exclude_max=True)
seeds = st.integers(0, 2**64 - 1)


def test_splitmix64_gives_the_published_numbers():
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert splitmix64(1234567, np.arange(4)).tolist() == expected


@given(
    size=st.integers(0, 60),
    modulus=st.integers(1, 5),
    block=st.integers(1, 70),
    start=st.integers(-5, 70),
    stop=st.none() | st.integers(-5, 70),
)
def test_rows_are_the_chosen_positions_in_blocks_of_any_size(size, modulus, block, start, stop):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "BLOCK", block)
        for rows, expected in (
            (splits.Rows(size), np.arange(size)),
            (splits.Rows(size, lambda positions: positions % modulus == 0), np.arange(0, size, modulus)),
        ):
            assert len(rows) == len(expected) and rows[:].tolist() == expected.tolist()
            assert rows[start:stop].tolist() == expected[start:stop].tolist()
            pieces = list(rows.blocks(start, stop))
            assert [position for piece in pieces for position in piece] == expected[start:stop].tolist()
            assert all(0 < len(piece) <= block for piece in pieces)


@given(validation=fractions, test=fractions, seed=seeds)
def test_fractions_are_kept_within_five_standard_deviations(validation, test, seed):
    count = 50_000
    parts = carve({"train": count}, validation_fraction=validation, test_fraction=test, seed=seed)
    rest = count - len(parts["test"][1])
    for split, of, fraction in (("test", count, test), ("validation", rest, validation)):
        few = 9 * (fraction > 0)  # the tail is longer than the normal one where nearly none or nearly all are taken
        assert abs(len(parts[split][1]) - of * fraction) <= 5 * (of * fraction * (1 - fraction)) ** 0.5 + few


def test_native_splits_stay_whole():
    sizes = {"train": 1000, "test": 300}
    parts = carve(sizes, validation_fraction=0.5, test_fraction=0.5, seed=0)
    assert parts["test"][0] == "test" and parts["test"][1][:].tolist() == list(range(300))
    assert parts["validation"][0] == "train" and 400 < len(parts["validation"][1]) < 600
    parts = carve({**sizes, "validation": 20}, validation_fraction=0.5, test_fraction=0.5, seed=0)
    assert parts["validation"][0] == "validation" and [len(part) for _, part in parts.values()] == [1000, 20, 300]


@given(train=st.integers(1, 2000), more=st.integers(0, 2000), validation=fractions, test=fractions, seed=seeds)
def test_every_example_is_in_one_split_in_order_and_stays_when_the_source_grows(train, more, validation, test, seed):
    small, large = (
        carve({"train": size}, validation_fraction=validation, test_fraction=test, seed=seed)
        for size in (train, train + more)
    )
    assert list(small) == ["train", "validation", "test"] and {native for native, _ in small.values()} == {"train"}
    assert sorted(i for _, rows in small.values() for i in rows[:].tolist()) == list(range(train))
    for split, (_, rows) in small.items():
        grown = large[split][1][:]
        assert (np.diff(grown) > 0).all()
        np.testing.assert_array_equal(rows[:], grown[grown < train])


def test_a_raised_fraction_only_adds_and_the_two_choices_are_independent():
    count = 50_000

    def chosen(split, seed=0, **fraction):
        both = {"validation_fraction": 0, "test_fraction": 0, **fraction}
        return set(carve({"train": count}, seed=seed, **both)[split][1][:].tolist())

    test, validation = chosen("test", test_fraction=0.2), chosen("validation", validation_fraction=0.2)
    assert test < chosen("test", test_fraction=0.3)
    for other in (validation, chosen("test", seed=1, test_fraction=0.2)):
        assert len(test & other) == pytest.approx(count * 0.04, rel=0.1)
