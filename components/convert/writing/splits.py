"""Carves validation and test examples off the training examples of a source that has none.

    parts = carve({"train": 60000, "test": 10000}, validation_fraction=0.1, test_fraction=0.2, seed=0)
    native, rows = parts["validation"]      # "train": which native split, and where in it
    rows[:2]                                # array([4, 17])

Whether an example is chosen depends on the seed and on its position in the source alone, so it stays where it is when
the source grows; and nothing needs to be remembered of each.
"""

import functools
from collections.abc import Callable, Iterator, Mapping

import numpy as np

BLOCK = 1 << 16  # examples that are looked at together
NAMES = {  # that others give to splits
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "val", "valid", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}


class Rows:
    """Positions in a native split, ascending, which are computed when they are asked for."""

    def __init__(self, size: int, chosen: Callable[[np.ndarray], np.ndarray] | None = None):
        """All of `range(size)`, or those positions for which `chosen` is true."""
        self._size, self._chosen = size, chosen
        self._ends = np.cumsum([0, *(len(self._block(i)) for i in range(-(-size // BLOCK)))])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, piece: slice) -> np.ndarray:
        """The positions, int64, of a contiguous piece."""
        start, stop, _ = piece.indices(len(self))
        first, last = np.searchsorted(self._ends, (start, stop), side="right") - 1
        blocks = [self._block(i) for i in range(first, min(last + 1, len(self._ends) - 1))]
        return np.concatenate([np.empty(0, np.int64), *blocks])[start - self._ends[first] :][: max(0, stop - start)]

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[np.ndarray]:
        """The piece from `start` to `stop`, `BLOCK` positions at a time."""
        start, stop, _ = slice(start, stop).indices(len(self))
        return (self[i : min(i + BLOCK, stop)] for i in range(start, stop, BLOCK))

    def _block(self, i: int) -> np.ndarray:
        positions = np.arange(i * BLOCK, min(self._size, (i + 1) * BLOCK))
        return positions if self._chosen is None else positions[self._chosen(positions)]


def carve(
    sizes: Mapping[str, int], *, validation_fraction: float, test_fraction: float, seed: int
) -> dict[str, tuple[str, Rows]]:
    """Of each split (`train`, `validation`, `test`), the native split and the positions in it.

    The fractions, of the training examples and of those that the test split leaves, are not used for splits that are
    among the native ones, of which the sizes are given.
    """
    test_key, validation_key = splitmix64(seed, np.arange(2))
    draws = {"test": (test_key, test_fraction), "validation": (validation_key, validation_fraction)}
    draws = {split: draw for split, draw in draws.items() if split not in sizes}

    def drawn(positions: np.ndarray, split: str) -> np.ndarray:
        """Which of the training examples go to the split, the test split being drawn first."""
        left = np.ones(len(positions), bool)
        for name, (key, fraction) in draws.items():
            chosen = left & (splitmix64(key, positions) < np.uint64(fraction * 2**64))
            if name == split:
                return chosen
            left &= ~chosen
        return left

    parts = {split: (split, Rows(size)) for split, size in sizes.items()}
    for split in ("train", *draws) if draws else ():
        parts[split] = ("train", Rows(sizes["train"], functools.partial(drawn, split=split)))
    return {split: parts[split] for split in ("train", "validation", "test")}


def splitmix64(seed: int, which: np.ndarray) -> np.ndarray:
    """Those outputs, counted from 0, of the SplitMix64 generator (https://prng.di.unimi.it/splitmix64.c), as uint64."""
    x = np.uint64(seed) + (which.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
