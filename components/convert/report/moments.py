"""Mean and standard deviation of numbers that come in parts.

    moments = Moments()
    moments.add(values, np.ones(len(values), np.int64))
    moments.absorb(other.state())
    moments.mean, moments.std

Parts are put together as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
variances" (1979). The same parts in the same order give the same result, whoever has read them.
"""

import math

import numpy as np


class Moments:
    """Count, mean and sum of squared deviations from the mean."""

    def __init__(self) -> None:
        self.count, self._mean, self._squares = 0, 0.0, 0.0

    @property
    def mean(self) -> float | None:
        """The mean; None of no numbers."""
        return self._mean if self.count else None

    @property
    def std(self) -> float | None:
        """The standard deviation, with the count as divisor; None of no numbers."""
        return math.sqrt(self._squares / self.count) if self.count else None

    def add(self, values: np.ndarray, counts: np.ndarray) -> None:
        """Adds numbers, of which there is at least one, and how many there are of each."""
        values = values.astype(np.float64)
        count = int(counts.sum())
        # About one of the numbers, so that those of a constant have no deviation.
        mean = values[0] + ((values - values[0]) * counts).sum() / count
        self.absorb((count, float(mean), float(((values - mean) ** 2 * counts).sum())))

    def state(self) -> tuple[int, float, float]:
        """All of it, as JSON."""
        return self.count, self._mean, self._squares

    def absorb(self, state: tuple[int, float, float]) -> None:
        """Adds the numbers of another one, which come behind."""
        count, mean, squares = state
        if count:
            total, difference = self.count + count, mean - self._mean
            self._squares += squares + difference**2 * (self.count * count / total)
            self._mean += difference * (count / total)
            self.count = total
