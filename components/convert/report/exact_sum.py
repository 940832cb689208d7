"""Exact sums of numbers, so that mean and deviation do not depend on how the numbers are split up, or on the machine.

    sums = Sums.of(np.float32)
    sums.add(values)
    sums.merge(other)
    sums.mean, sums.std

Floating-point addition depends on the order, and NumPy's order on the processor. Whole numbers of any size do not, and
every float32 is one, times the smallest of them.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

_SMALLEST = 149  # 2**-149 is the smallest float32
_MANTISSA = 23  # bits; of a normal number a leading one comes before them
_LOWER_HALF = 0xFFFFFFFF


@dataclasses.dataclass(kw_only=True)
class Sums:
    """Of finite numbers, their count, sum and sum of squares.

    Attributes:
      bits: The unit of the sum is 2**-bits, that of the sum of squares its square.
      count: How many numbers.
      total: Their sum in units.
      squares: The sum of their squares in square units.
    """

    bits: int
    count: int = 0
    total: int = 0
    squares: int = 0

    @classmethod
    def of(cls, dtype: np.typing.DTypeLike) -> Sums:
        """For numbers of a type: float32 or integers."""
        return cls(bits=_SMALLEST if np.dtype(dtype) == np.float32 else 0)

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

    def add(self, values: np.ndarray) -> None:
        """Adds numbers, at most 2**29, of the type that the sums are for."""
        self.count += len(values)
        if self.bits:
            self._add_floats(np.ascontiguousarray(values, np.float32).view(np.uint32))
        else:
            self._add_integers(values.astype(np.int64, copy=False))

    def merge(self, other: Sums) -> None:
        """Adds the numbers that others have added."""
        self.count += other.count
        self.total += other.total
        self.squares += other.squares

    def _add_floats(self, patterns: np.ndarray) -> None:
        """Groups the bit patterns by sign and exponent, in each of which the numbers are whole multiples of one."""
        groups, mantissas = patterns >> _MANTISSA, patterns & ((1 << _MANTISSA) - 1)
        squares = mantissas.astype(np.uint64) ** 2
        counts = np.bincount(groups)
        # The weights are whole and their sums below 2**53, so these are exact.
        first, low, high = (
            np.bincount(groups, weights)
            for weights in (mantissas, squares & ((1 << _MANTISSA) - 1), squares >> _MANTISSA)
        )
        for group in np.flatnonzero(counts).tolist():
            sign, exponent = -1 if group >> 8 else 1, group & 0xFF
            one, shift = (1 << _MANTISSA, exponent - 1) if exponent else (0, 0)
            count, mantissa = int(counts[group]), int(first[group])
            square = (int(high[group]) << _MANTISSA) + int(low[group])
            self.total += sign * (count * one + mantissa) << shift
            self.squares += (count * one**2 + 2 * one * mantissa + square) << 2 * shift

    def _add_integers(self, values: np.ndarray) -> None:
        high, low = values >> 32, values & _LOWER_HALF
        self.total += _sum(values)
        self.squares += _sum(low.astype(np.uint64) ** 2)
        if high.any():
            self.squares += (_sum(high * high) << 64) + (_sum(high * low) << 33)


def _sum(values: np.ndarray) -> int:
    """Of 64-bit integers, without overflow."""
    return (int((values >> 32).sum()) << 32) + int((values & _LOWER_HALF).sum())
