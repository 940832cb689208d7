"""Carves validation and test examples off the training examples of a source that has none.

    parts = carve({"train": 60000, "test": 10000}, validation_fraction=0.1, test_fraction=0.2, seed=0)
    parts["validation"]     # ("train", array([4, 17, ...])): which native split, and where in it

Whether an example is chosen depends on the seed and on its position in the source alone, so it stays where it is when
the source grows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def carve(
    sizes: Mapping[str, int], *, validation_fraction: float, test_fraction: float, seed: int
) -> dict[str, tuple[str, np.ndarray]]:
    """Of each split (`train`, `validation`, `test`), the native split and the positions in it, ascending.

    Args:
      sizes: Number of examples of each native split; `train` is among them.
      validation_fraction: Of the training examples that are left by `test_fraction`; 0 <= fraction < 1. Not used if
        the source has a validation split.
      test_fraction: Of the training examples; 0 <= fraction < 1. Not used if the source has a test split.
      seed: 0 <= seed < 2**64.
    """
    parts = {split: (split, np.arange(size)) for split, size in sizes.items()}
    rest = np.arange(sizes["train"])
    test_key, validation_key = splitmix64(seed, 2)
    for split, fraction, key in (
        ("test", test_fraction, test_key),
        ("validation", validation_fraction, validation_key),
    ):
        if split not in sizes:
            chosen = splitmix64(key, sizes["train"])[rest] < np.uint64(fraction * 2**64)
            parts[split] = ("train", rest[chosen])
            rest = rest[~chosen]
    parts["train"] = ("train", rest)
    return {split: parts[split] for split in ("train", "validation", "test")}


def splitmix64(seed: int, count: int) -> np.ndarray:
    """The first outputs, uint64 [count], of the SplitMix64 generator (https://prng.di.unimi.it/splitmix64.c)."""
    x = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
