"""Draws validation and test examples from the training examples of a source that has none of its own.

    draws = Draws({"train"}, validation_fraction=0.1, test_fraction=0.2, seed=0)
    for split, chosen in draws.of("train", block.positions, block.by): ...      # bool [N] each

Whether an example is chosen depends on the seed and on its position in the source alone, so it stays where it is when
the source grows; and nothing needs to be remembered of each. A schema may say that something else decides.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from common.errors import UserError
from components.convert.writing.splits import splitmix64


@dataclasses.dataclass(frozen=True, kw_only=True)
class By:
    """What decides about examples in place of their positions.

    Attributes:
      given: By split, the examples that it takes of those that the test split leaves, bool [N].
      groups: uint64 [N]: equal ones go to one split.
    """

    given: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    groups: np.ndarray | None = None


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

    def of(self, native: str, positions: np.ndarray, by: By | None = None) -> Iterator[tuple[str, np.ndarray]]:
        """Each split, with which examples of a native one go there, bool [N]; a schema says how only where the source has no splits."""
        if by and set(self.native) != {"train"}:
            own = ", ".join(sorted({*self.native} - {"train"}))
            raise UserError(
                f"split: the source has its own {own}; take split out of the schema, or give training files only"
            )
        by, left = by or By(), np.ones(len(positions), bool)
        for split, (key, fraction) in self.drawn.items() if native == "train" else ():
            if split in by.given:
                chosen = by.given[split]
            else:
                chosen = splitmix64(key, positions if by.groups is None else by.groups) < np.uint64(fraction * 2**64)
            chosen = left & chosen
            left &= ~chosen
            yield split, chosen
        yield native, left

    def training(self, positions: np.ndarray, by: By | None = None) -> np.ndarray:
        """Which examples of the native training split are for training, bool [N]."""
        return dict(self.of("train", positions, by))["train"]
