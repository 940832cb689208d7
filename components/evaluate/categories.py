"""Few categories of a column's values: numbers by quantiles, texts by how frequent they are."""

import itertools

import numpy as np


class Categories:
    """Categories of the values of one column, by which others can be told apart too.

    Of a column with more than `most` different values, numbers are cut into so many `bins` of
    equally many records, and of texts the most frequent are kept; all others are the last category.
    """

    def __init__(self, values: np.ndarray, most: int, bins: int) -> None:
        distinct, counts = np.unique(values, return_counts=True)
        self._num_others = len(distinct) - most
        self._is_cut = self._num_others > 0 and values.dtype != object
        if self._is_cut:
            self._keys = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1]))
        else:
            self._keys = np.sort(distinct[np.argsort(-counts, kind="stable")[:most]])

    def __len__(self) -> int:
        return len(self._keys) + 1

    def of(self, values: np.ndarray) -> np.ndarray:
        """Returns the category of each value, [N]."""
        if self._is_cut:
            return np.searchsorted(self._keys, values, side="right")
        at = np.minimum(np.searchsorted(self._keys, values), len(self._keys) - 1)
        return np.where(self._keys[at] == values, at, len(self._keys))

    def names(self) -> list[str]:
        """Returns what the categories are, in words."""
        if self._is_cut:
            ends = [f"{key:g}" for key in self._keys]
            middle = [f"{low} <= x < {high}" for low, high in itertools.pairwise(ends)]
            return [f"x < {ends[0]}", *middle, f"x >= {ends[-1]}"]
        names = [
            v.decode(errors="replace") if isinstance(v, bytes) else str(v)
            for v in self._keys.tolist()
        ]
        return [*names, f"{self._num_others} others"]
