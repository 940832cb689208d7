"""Draws validation and test examples from the training examples of a source that has none of its own.

    draws = Draws({"train"}, validation_fraction=0.1, test_fraction=0.2, seed=0)
    drawing = draws.begin("train", piece.position)
    for split, chosen in drawing.of(block.positions, block.by): ...      # bool [N] each

Whether an example is chosen depends on the seed and on its position in the source alone, so it stays where it is when
the source grows; and nothing needs to be remembered of each. A schema may say that something else decides.
"""

import collections
import dataclasses
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from components.convert.writing.splits import splitmix64
from trainer.base.errors import UserError

_UNIT = 32  # bits of a fraction


@dataclasses.dataclass(frozen=True, kw_only=True)
class By:
    """What decides about examples in place of their positions.

    Attributes:
      given: By split, the examples that it takes of those that the test split leaves, bool [N].
      groups: uint64 [N]: equal ones go to one split.
      strata: int64 [N]: each split gets its share of those that are equal, exact to one example of a piece.
    """

    given: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    groups: np.ndarray | None = None
    strata: np.ndarray | None = None


class Draws:
    """The splits of a source of which the native ones are given; fractions of those that are among them are not used.

    The test split is drawn from the training examples, the validation split from what it leaves.
    """

    def __init__(self, native: Collection[str], *, validation_fraction: float, test_fraction: float, seed: int):
        test_key, validation_key = splitmix64(seed, np.arange(2))
        drawn = {"test": (test_key, test_fraction), "validation": (validation_key, validation_fraction)}
        self.drawn = {split: draw for split, draw in drawn.items() if split not in native}
        self.native = native

    def shares(self, native: str) -> dict[str, float]:
        """The splits that examples of a native split go to, with the share of each that the fractions make expect."""
        if native != "train":
            return {native: 1.0}
        left, found = 1.0, {}
        for split, (_, fraction) in self.drawn.items():
            found[split], left = left * fraction, left * (1 - fraction)
        return {"train": left, **found}

    def begin(self, native: str, start: int) -> "Drawing":
        """The draws of a piece, given its native split and its position there."""
        return Drawing(self, native, start)


class Drawing:
    """The draws of a piece, whose examples come in order."""

    def __init__(self, draws: Draws, native: str, start: int):
        self._draws, self._native, self._start = draws, native, start
        self._ranks: collections.Counter[tuple[str, int]] = collections.Counter()  # the next ones by split and stratum

    def of(self, positions: np.ndarray, by: By | None = None) -> Iterator[tuple[str, np.ndarray]]:
        """Each split, with which of the next examples go there, bool [N]; a schema says how only where the source has no splits."""
        if by and set(self._draws.native) != {"train"}:
            own = ", ".join(sorted({*self._draws.native} - {"train"}))
            raise UserError(
                f"split: the source has its own {own}; take split out of the schema, or give training files only"
            )
        by, left = by or By(), np.ones(len(positions), bool)
        for split, (key, fraction) in self._draws.drawn.items() if self._native == "train" else ():
            if split in by.given:
                chosen = by.given[split]
            elif by.strata is not None and fraction:
                chosen = self._of_each(split, key, fraction, np.where(left, by.strata, -1))
            else:
                chosen = splitmix64(key, positions if by.groups is None else by.groups) < np.uint64(fraction * 2**64)
            chosen = left & chosen
            left &= ~chosen
            yield split, chosen
        yield self._native, left

    def training(self, positions: np.ndarray, by: By | None = None) -> np.ndarray:
        """Which of the next examples of the native training split are for training, bool [N]."""
        return dict(self.of(positions, by))["train"]

    def _of_each(self, split: str, key: np.uint64, fraction: float, strata: np.ndarray) -> np.ndarray:
        """One of every 1 / fraction examples of each stratum, drawn by chance; strata below 0 are passed over."""
        chosen, share = np.zeros(len(strata), bool), max(1, int(fraction * 2**_UNIT))
        for stratum in np.unique(strata[strata >= 0]).tolist():
            rows = np.flatnonzero(strata == stratum)
            ranks = self._ranks[split, stratum] + np.arange(len(rows))
            self._ranks[split, stratum] += len(rows)
            seed = splitmix64(splitmix64(key, np.array([self._start]))[0], np.array([stratum]))[0]
            offset = int(seed >> np.uint64(64 - _UNIT))
            # In whole numbers, so that the ranges of ranks from which one is drawn meet without gap or overlap.
            which = ranks * share + offset >> _UNIT
            first, end = (-((offset - (n << _UNIT)) // share) for n in (which, which + 1))
            drawn = first + (splitmix64(seed, which) % (end - first).astype(np.uint64)).astype(np.int64)
            chosen[rows] = ranks == drawn
        return chosen
