"""How often numbers of about one size occur, by which a histogram can be drawn once all of them are known.

    bins = Bins(np.float32)
    bins.add(values)
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

from components.convert.writing.byte_strings import SPAN, distinct

_MOST = 2048
_SHOWN = 20  # bars of a histogram, beside those of the tails
_TAIL = 100  # one number in so many lies below the lowest edge, and one above the highest


class Bins:
    """Of finite float32s or integers.

    A bin has the number of the bits of its lower end without the last `level` ones. They are those of a float32, or of a
    float64 if the numbers are integers; of what is below 0 they are the negative of those of its opposite.
    """

    def __init__(self, dtype: np.typing.DTypeLike):
        self._floats = np.dtype(dtype) == np.float32
        # Integers beyond 2**53 are no float64, but without their last 11 bits they are.
        self.level = 0 if self._floats else 11
        self._bins, self._counts = np.empty((2, 0), np.int64)

    def add(self, values: np.ndarray) -> None:
        """Counts numbers, one at least."""
        if self._floats or int(values.max()) - int(values.min()) >= SPAN:
            self._put(self.level, *distinct(self._bits(values) >> self.level))
        else:
            different, counts = distinct(values)
            self._put(self.level, self._bits(different) >> self.level, counts)

    def state(self) -> Any:
        """All of it, as JSON."""
        return self.level, np.diff(self._bins, prepend=0).tolist(), self._counts.tolist()

    def absorb(self, state: Any) -> None:
        """Adds the state of another one, of the same type."""
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
        low, end = self._values([first << level, last + 1 << level])
        if self._floats:
            wanted = [low + (end - low) * (i / _SHOWN) for i in range(_SHOWN + 1)]
        else:
            width = -(-(end - low) // _SHOWN)  # of as many integers in each
            wanted = [min(edge, np.iinfo(np.int64).max) for edge in range(low, end + width, width)]
        return tuple(self._values(np.unique(self._bits(wanted) >> level << level)))

    def histogram(self, edges: Sequence[float]) -> tuple[int, ...]:
        """How many numbers are below the first edge, from each edge to below the next, and from the last one on.

        The edges are those of a level that is not below the one here.
        """
        found = np.searchsorted(self._bits(edges), self._within(self._bins << self.level), side="right")
        return tuple(np.bincount(found, self._counts, len(edges) + 1).astype(np.int64).tolist())

    def _put(self, level: int, bins: np.ndarray, counts: np.ndarray) -> None:
        """Adds counts of the bins of a level."""
        common = max(level, self.level)
        bins = np.concatenate([self._bins >> common - self.level, bins.astype(np.int64) >> common - level])
        order, self.level = np.argsort(bins, kind="stable"), common
        self._bins, self._counts = _folded(bins[order], np.concatenate([self._counts, counts])[order])
        if len(self._bins) > _MOST:
            # Neighbours become one bin when all digits in which they differ are dropped.
            unlike = np.sort((self._bins[1:] ^ self._bins[:-1]).view(np.uint64))
            dropped = int(unlike[-_MOST]).bit_length()
            self._bins, self._counts = _folded(self._bins >> dropped, self._counts)
            self.level += dropped

    def _bits(self, values: np.ndarray | Sequence[float]) -> np.ndarray:
        """Those of numbers, which ascend as these do."""
        if self._floats:
            bits = np.asarray(values, np.float32).view(np.int32)
        else:
            values = np.asarray(values, np.int64)
            bits = (
                np.where(np.abs(values >> 1) < 1 << 52, values, values & -(1 << 11)).astype(np.float64).view(np.int64)
            )
        return np.where(bits < 0, np.iinfo(bits.dtype).min - bits, bits)

    def _within(self, bits: np.ndarray | Sequence[int]) -> np.ndarray:
        """The same, or those of the least or most number that there is."""
        known = np.finfo(np.float32) if self._floats else np.iinfo(np.int64)
        return np.clip(bits, *self._bits([known.min, known.max]))

    def _values(self, bits: Sequence[int]) -> list[float]:
        """The numbers that have such bits, integers rounded up; or the least or most there is."""
        bits = self._within(bits)
        kind = np.float32 if self._floats else np.float64
        values = np.copysign(np.abs(bits).astype(f"i{kind().itemsize}").view(kind), bits)
        return values.tolist() if self._floats else list(map(math.ceil, values.tolist()))


def _folded(bins: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ascending bins, those that are equal put together."""
    starts = np.flatnonzero(np.diff(bins, prepend=bins[:1] - 1))
    return bins[starts], np.add.reduceat(counts, starts) if len(starts) else counts
