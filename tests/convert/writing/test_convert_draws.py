import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.convert.writing.draws import By, Draws
from components.convert.writing.splits import splitmix64
from trainer.base.errors import UserError

SPLITS = ["train", "validation", "test"]
shares = st.sampled_from([0.0, 0.03, 0.1, 0.25, 1 / 3, 0.5, 0.81])


def drawn(draws: Draws, start: int, blocks: list[tuple[np.ndarray, By | None]]) -> np.ndarray:
    """The split of each example of a piece, which comes in blocks, by its number in `SPLITS`."""
    drawing, found = draws.begin("train", start), []
    for positions, by in blocks:
        chosen = dict(drawing.of(positions, by))
        assert (sum(rows.astype(int) for rows in chosen.values()) == 1).all()
        found.append(sum(SPLITS.index(split) * rows for split, rows in chosen.items()))
    return np.concatenate(found)


@given(validation=shares, test=shares, seed=st.integers(0, 2**64 - 1))
def test_positions_are_drawn_as_they_always_were(validation, test, seed):
    options = {"validation_fraction": validation, "test_fraction": test, "seed": seed}
    found = drawn(Draws({"train"}, **options), 0, [(np.arange(500), None)])
    keys, left = splitmix64(seed, np.arange(2)), np.ones(500, bool)
    for split, key, fraction in (("test", keys[0], test), ("validation", keys[1], validation)):
        taken = left & (splitmix64(key, np.arange(500)) < np.uint64(fraction * 2**64))
        assert (taken == (found == SPLITS.index(split))).all()
        left &= ~taken
    assert list(dict(Draws({"train", "test"}, **options).begin("test", 0).of(np.arange(9)))) == ["test"]


@given(groups=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50), seed=st.integers(0, 99))
def test_all_of_a_group_go_to_one_split_wherever_they_are(groups, seed):
    groups = np.array(groups, np.uint64)
    draws = Draws({"train"}, validation_fraction=0.3, test_fraction=0.3, seed=seed)
    one = drawn(draws, 0, [(np.arange(len(groups)), By(groups=groups))])
    other = drawn(draws, 700, [(np.arange(len(groups)) + 700, By(groups=groups[::-1]))])
    assert one.tolist() == other[::-1].tolist()


def test_groups_are_split_by_the_fractions():
    groups = np.random.default_rng(0).integers(0, 2**63, 20_000, np.uint64)
    draws = Draws({"train"}, validation_fraction=0.25, test_fraction=0.2, seed=3)
    found = np.bincount(drawn(draws, 0, [(np.arange(20_000), By(groups=groups))])) / 20_000
    assert found == pytest.approx([0.6, 0.2, 0.2], abs=0.02)


@given(data=st.data(), validation=shares, test=shares, seed=st.integers(0, 2**64 - 1), start=st.integers(0, 10**12))
def test_every_stratum_of_a_piece_is_split_by_the_fractions_to_one_example_whatever_the_blocks(
    data, validation, test, seed, start
):
    strata = np.random.default_rng(seed % 1000).choice(4, data.draw(st.integers(1, 400)), p=[0.6, 0.3, 0.08, 0.02])
    positions, cuts = start + np.arange(len(strata)), sorted(data.draw(st.lists(st.integers(0, 400), max_size=3)))
    draws = Draws({"train"}, validation_fraction=validation, test_fraction=test, seed=seed)
    found = drawn(draws, start, [(positions, By(strata=strata))])
    blocks = zip(np.split(positions, cuts), np.split(strata, cuts), strict=True)
    assert found.tolist() == drawn(draws, start, [(at, By(strata=of)) for at, of in blocks]).tolist()
    for stratum in range(4):
        _, in_validation, in_test = np.bincount(found[strata == stratum], minlength=3).tolist()
        many = int((strata == stratum).sum())
        assert abs(in_test - many * test) < 2 and abs(in_validation - (many - in_test) * validation) < 2
        assert test or not in_test


def test_small_strata_of_many_pieces_are_split_by_the_fractions_and_not_by_their_order():
    draws, strata = Draws({"train"}, validation_fraction=0.0, test_fraction=0.2, seed=0), np.zeros(5, int)
    found = [drawn(draws, i * 5, [(i * 5 + np.arange(5), By(strata=strata))]) for i in range(4000)]
    assert np.mean(found, axis=0) / 2 == pytest.approx([0.2] * 5, abs=0.03)
    whole = drawn(draws, 0, [(np.arange(10_000), By(strata=np.zeros(10_000, int)))])
    assert np.bincount(np.flatnonzero(whole == 2) % 5) == pytest.approx([400] * 5, abs=100)  # no rhythm of its own


def test_what_is_given_goes_before_what_is_drawn_and_splits_of_the_source_before_all():
    draws = Draws({"train"}, validation_fraction=0.5, test_fraction=0.5, seed=0)
    late = np.arange(100) >= 80
    found = drawn(draws, 0, [(np.arange(100), By(given={"test": late}))])
    assert (found[80:] == 2).all() and set(found[:80]) == {0, 1}
    found = drawn(draws, 0, [(np.arange(100), By(given={"test": late, "validation": np.arange(100) >= 70}))])
    assert found.tolist() == [0] * 70 + [1] * 10 + [2] * 20
    own = Draws({"train", "test"}, validation_fraction=0.5, test_fraction=0.5, seed=0)
    for native in ("train", "test"):
        with pytest.raises(UserError, match="split: the source has its own test; take split out of the schema"):
            own.begin(native, 0).training(np.arange(9), By(strata=np.zeros(9, int)))
