import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.convert.writing.draws import By, Draws
from components.convert.writing.splits import splitmix64

SPLITS = ["train", "validation", "test"]
shares = st.sampled_from([0.0, 0.03, 0.1, 0.25, 1 / 3, 0.5, 0.81])


def drawn(draws: Draws, positions: np.ndarray, by: By | None = None) -> np.ndarray:
    """The split of each training example, by its number in `SPLITS`."""
    chosen = dict(draws.of("train", positions, by))
    assert (sum(rows.astype(int) for rows in chosen.values()) == 1).all()
    return sum(SPLITS.index(split) * rows for split, rows in chosen.items())


@given(validation=shares, test=shares, seed=st.integers(0, 2**64 - 1))
def test_positions_are_drawn_as_they_always_were(validation, test, seed):
    options = {"validation_fraction": validation, "test_fraction": test, "seed": seed}
    found = drawn(Draws({"train"}, **options), np.arange(500))
    keys, left = splitmix64(seed, np.arange(2)), np.ones(500, bool)
    for split, key, fraction in (("test", keys[0], test), ("validation", keys[1], validation)):
        taken = left & (splitmix64(key, np.arange(500)) < np.uint64(fraction * 2**64))
        assert (taken == (found == SPLITS.index(split))).all()
        left &= ~taken
    assert list(dict(Draws({"train", "test"}, **options).of("test", np.arange(9)))) == ["test"]


@given(groups=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50), seed=st.integers(0, 99))
def test_all_of_a_group_go_to_one_split_wherever_they_are(groups, seed):
    groups = np.array(groups, np.uint64)
    draws = Draws({"train"}, validation_fraction=0.3, test_fraction=0.3, seed=seed)
    one = drawn(draws, np.arange(len(groups)), By(groups=groups))
    other = drawn(draws, np.arange(len(groups)) + 700, By(groups=groups[::-1]))
    assert one.tolist() == other[::-1].tolist()


def test_groups_are_split_by_the_fractions():
    groups = np.random.default_rng(0).integers(0, 2**63, 20_000, np.uint64)
    draws = Draws({"train"}, validation_fraction=0.25, test_fraction=0.2, seed=3)
    found = np.bincount(drawn(draws, np.arange(20_000), By(groups=groups))) / 20_000
    assert found == pytest.approx([0.6, 0.2, 0.2], abs=0.02)


def test_given_splits_go_before_drawn_ones():
    draws = Draws({"train"}, validation_fraction=0.5, test_fraction=0.5, seed=0)
    late = np.arange(100) >= 80
    found = drawn(draws, np.arange(100), By(given={"test": late}))
    assert (found[80:] == 2).all() and set(found[:80]) == {0, 1}
    found = drawn(draws, np.arange(100), By(given={"test": late, "validation": np.arange(100) >= 70}))
    assert found.tolist() == [0] * 70 + [1] * 10 + [2] * 20
