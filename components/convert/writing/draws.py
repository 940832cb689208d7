"""Draws validation and test examples from the training examples of a source that has none of its own.

    draws = Draws({"train"}, validation_fraction=0.1, test_fraction=0.2, seed=0)
    for split, chosen in draws.of("train", positions): ...      # bool [N] each

Whether an example is chosen depends on the seed and on its position in the source alone, so it stays where it is when
the source grows; and nothing needs to be remembered of each.
"""

import functools
from collections.abc import Collection, Iterator

import numpy as np

from components.convert.writing.splits import splitmix64


class Draws:
    """The splits of a source of which the native ones are given; fractions of those that are among them are not used.

    The test split is drawn from the training examples, the validation split from what it leaves.
    """

    def __init__(self, native: Collection[str], *, validation_fraction: float, test_fraction: float, seed: int):
        test_key, validation_key = splitmix64(seed, np.arange(2))
        drawn = {"test": (test_key, test_fraction), "validation": (validation_key, validation_fraction)}
        self._drawn = {split: draw for split, draw in drawn.items() if split not in native and draw[1]}
        self._native = native

    def shares(self, native: str) -> dict[str, float]:
        """The splits that examples of a native split go to, with the expected share of each."""
        if native != "train":
            return {native: 1.0}
        left, found = 1.0, {}
        for split, (_, fraction) in self._drawn.items():
            found[split], left = left * fraction, left * (1 - fraction)
        return {"train": left, **found}

    def of(self, native: str, positions: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Each of these splits, with which of the examples at some positions of the native split go there, bool [N]."""
        left = np.ones(len(positions), bool)
        for split, (key, fraction) in self._drawn.items() if native == "train" else ():
            chosen = left & (splitmix64(key, positions) < np.uint64(fraction * 2**64))
            left &= ~chosen
            yield split, chosen
        yield native, left

    @functools.cached_property
    def training(self):
        """Tells of positions in the native training split which are for training, bool [N]."""
        return lambda positions: dict(self.of("train", positions))["train"]
