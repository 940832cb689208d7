"""How often numbers of about one size occur, by which a histogram can be drawn once all of them are known.

    bins = Bins(np.float32)
    bins.add(values, np.ones(len(values), np.int64))
    bins.absorb(other.state())
    edges = bins.edges(bins.level)
    bins.histogram(edges)

A number's bin follows from its leading binary digits alone: as many of them as leave at most `_MOST` bins. The digits that
are dropped only become more with more numbers, so bins are a function of the numbers, in whatever parts they come.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from components.convert.writing.byte_strings import SPAN

_MOST = 2048
_SHOWN = 20  # bars of a histogram, beside those of the tails
_TAIL = 100  # one number in so many lies below the lowest edge, and one above the highest
_FLOAT32_ZEROS = 29  # bits that end a float64 which is a float32


class Bins:
    """Of finite float32s, or of integers as the float64s next to them.

    A bin has the number that the bits of its lower end are without the last `level` ones.
    """

    def __init__(self, dtype: np.typing.DTypeLike):
        self._whole = np.dtype(dtype) != np.float32
        self.level = 0 if self._whole else _FLOAT32_ZEROS
        self._bins, self._counts = np.empty((2, 0), np.int64)

    def add(self, values: np.ndarray, counts: np.ndarray) -> None:
        """Takes in numbers, and how many there are of each."""
        for part in slice(2 * _MOST), slice(2 * _MOST, None):  # a few of them tell which digits all can do without
            self._put(self.level, _bits(values[part]) >> self.level, counts[part])

    def state(self) -> Any:
        """All of it, as JSON."""
        return self.level, np.diff(self._bins, prepend=0).tolist(), self._counts.tolist()

    def absorb(self, state: Any) -> None:
        """Takes in the state of another one, of the same type."""
        level, steps, counts = state
        self._put(level, np.cumsum(np.array(steps, np.int64)), np.array(counts, np.int64))

    def edges(self, level: int) -> tuple[float, ...]:
        """Edges of a histogram, about equally far apart, between bins of a level that is not below the one here."""
        if not len(self._bins):
            return ()
        up_to = np.cumsum(self._counts)
        tail = int(up_to[-1]) // _TAIL
        inner = np.searchsorted(up_to, (tail, up_to[-1] - 1 - tail), side="right")
        first, last = (self._bins[inner] >> level - self.level).tolist()
        low, end = _values(np.array([first << level, last + 1 << level]))
        wanted = [low + (end - low) * (i / _SHOWN) for i in range(_SHOWN + 1)]
        if self._whole:
            low, end = int(low), math.ceil(end)
            width = -(-(end - low) // _SHOWN)  # of as many integers in each
            wanted = range(low, end + width, width)
        found = _values(np.unique(_bits(wanted) >> level << level))
        return tuple(map(int, found) if self._whole else found)

    def histogram(self, edges: Sequence[float]) -> tuple[int, ...]:
        """How many numbers are below the first edge, from each edge to below the next, and from the last one on.

        The edges are those of a level that is not below the one here.
        """
        found = np.searchsorted(_bits(edges), self._bins << self.level, side="right")
        return tuple(np.bincount(found, self._counts, len(edges) + 1).astype(np.int64).tolist())

    def _put(self, level: int, bins: np.ndarray, counts: np.ndarray) -> None:
        """Adds counts of the bins of a level."""
        if not len(bins):
            return
        if (span := int(bins.max()) - (least := int(bins.min()))) < SPAN and len(bins) > _MOST:
            summed = np.bincount(bins - least, counts, span + 1)  # which is faster than to sort them
            bins = np.flatnonzero(summed)
            bins, counts = bins + least, summed[bins].astype(np.int64)
        common = max(level, self.level)
        bins = np.concatenate([self._bins >> common - self.level, bins >> common - level])
        order, self.level = np.argsort(bins, kind="stable"), common
        self._bins, self._counts = _folded(bins[order], np.concatenate([self._counts, counts])[order])
        if len(self._bins) > _MOST:
            # Neighbours become one bin when all digits in which they differ are dropped.
            unlike = np.sort((self._bins[1:] ^ self._bins[:-1]).view(np.uint64))
            dropped = int(unlike[-_MOST]).bit_length()
            self._bins, self._counts = _folded(self._bins >> dropped, self._counts)
            self.level += dropped


def _bits(values: np.ndarray | Sequence[float]) -> np.ndarray:
    """Those of float64s; of what is below 0 the negative of those of its opposite, so that they ascend as numbers do."""
    bits = np.asarray(values, np.float64).view(np.int64)
    return np.where(bits < 0, np.iinfo(np.int64).min - bits, bits)


def _values(bits: np.ndarray) -> list[float]:
    return np.copysign(np.abs(bits).view(np.float64), bits).tolist()


def _folded(bins: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ascending bins, those that are equal put together."""
    starts = np.flatnonzero(np.diff(bins, prepend=bins[:1] - 1))
    return bins[starts], np.add.reduceat(counts, starts)
