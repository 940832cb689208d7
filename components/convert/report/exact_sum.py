"""Exact sums of numbers, so that mean and deviation do not depend on how the numbers are split up, or on the machine.

    sums = Sums(np.float32)
    sums.add(values, np.ones(len(values), np.int64))
    sums.absorb(other.state())
    sums.mean, sums.std

Floating-point addition depends on the order, and NumPy's order on the processor. Whole numbers of any size do not, and
every float32 is one, times the smallest of them.
"""

import math

import numpy as np

_MANTISSA = 24  # bits of a float32
_LEAST = -148  # exponent of the smallest one, 0.5 * 2**-148
_LOWER_HALF = 0xFFFFFFFF


class Sums:
    """Count, sum and sum of squares of finite float32s or integers, the sums in units of 2**-bits and of its square."""

    def __init__(self, dtype: np.typing.DTypeLike):
        self.bits = _MANTISSA - _LEAST if np.dtype(dtype) == np.float32 else 0
        self.count = self.total = self.squares = 0

    @property
    def mean(self) -> float | None:
        """The float next to the exact mean; None of no numbers."""
        return self.total / (self.count << self.bits) if self.count else None

    @property
    def std(self) -> float | None:
        """Standard deviation, with the count as divisor; None of no numbers."""
        if not self.count:
            return None
        return math.sqrt((self.count * self.squares - self.total**2) / (self.count**2 << 2 * self.bits))

    def add(self, values: np.ndarray, counts: np.ndarray) -> None:
        """Adds numbers of the type that the sums are for, and how many there are of each, at most 2**29 together."""
        self.count += int(counts.sum())
        if self.bits:
            self._add_floats(values, counts)
        else:
            self._add_integers(values.astype(np.int64, copy=False), counts)

    def state(self) -> tuple[int, int, int]:
        """All of it, as JSON."""
        return self.count, self.total, self.squares

    def absorb(self, state: tuple[int, int, int]) -> None:
        """Adds the numbers that others of the same type have added."""
        count, total, squares = state
        self.count += count
        self.total += total
        self.squares += squares

    def _add_floats(self, values: np.ndarray, counts: np.ndarray) -> None:
        """Groups the numbers by exponent: those of a group are whole multiples of one."""
        mantissas, exponents = np.frexp(values)
        groups, whole = (exponents - _LEAST).astype(np.intp), (mantissas * (1 << _MANTISSA)).astype(np.int64)
        squares = whole**2
        # The weights are whole and their sums below 2**53, so these are exact.
        first, low, high = (
            np.bincount(groups, weights * counts)
            for weights in (whole, squares & ((1 << _MANTISSA) - 1), squares >> _MANTISSA)
        )
        for group in np.flatnonzero(high).tolist():
            self.total += int(first[group]) << group
            self.squares += (int(high[group]) << _MANTISSA) + int(low[group]) << 2 * group

    def _add_integers(self, values: np.ndarray, counts: np.ndarray) -> None:
        high, low = values >> 32, values & _LOWER_HALF
        self.total += _sum(values, counts)
        self.squares += _sum(low.astype(np.uint64) ** 2, counts)
        if high.any():
            self.squares += (_sum(high * high, counts) << 64) + (_sum(high * low, counts) << 33)


def _sum(values: np.ndarray, counts: np.ndarray) -> int:
    """Of 64-bit integers, each as often as it is there, without overflow."""
    high, low = ((half.astype(np.int64) * counts).sum() for half in (values >> 32, values & _LOWER_HALF))
    return (int(high) << 32) + int(low)
