"""Groups the values of a column into few categories: numbers by quantiles, texts by frequency."""

import itertools

import numpy as np


class Categories:
    """Categories of the values of one column.

    They are learnt from `values`, and can then be looked up for other values of the column. If
    there are at most `most` distinct values, each is a category. If there are more, numbers are cut
    at quantiles into at most `bins` ranges of about equally many values, and of texts the `most`
    frequent ones are kept. Unless the values are cut into ranges, a last category takes all other
    values.
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
        """Returns the number of the category of each value, int64 [N], in `range(len(self))`."""
        if self._is_cut:
            return np.searchsorted(self._keys, values, side="right")
        at = np.minimum(np.searchsorted(self._keys, values), len(self._keys) - 1)
        return np.where(self._keys[at] == values, at, len(self._keys))

    def names(self) -> list[str]:
        """Returns a name for each category in order, such as `a`, `2 <= x < 5` or `12 others`.

        The number of others is that of the distinct values beyond `most`. It means nothing if there
        are none.
        """
        if self._is_cut:
            ends = [f"{key:g}" for key in self._keys]
            middle = [f"{low} <= x < {high}" for low, high in itertools.pairwise(ends)]
            return [f"x < {ends[0]}", *middle, f"x >= {ends[-1]}"]
        names = [
            v.decode(errors="replace") if isinstance(v, bytes) else str(v)
            for v in self._keys.tolist()
        ]
        return [*names, f"{self._num_others} others"]
