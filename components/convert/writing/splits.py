"""The splits, what others call them, and the numbers by which examples are drawn for them."""

import numpy as np

SPLITS = ("train", "validation", "test")
NAMES = {  # that others give to splits
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "val", "valid", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}


def splitmix64(seed: int, which: np.ndarray) -> np.ndarray:
    """Those outputs, counted from 0, of the SplitMix64 generator (https://prng.di.unimi.it/splitmix64.c), as uint64."""
    x = np.uint64(seed) + (which.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
