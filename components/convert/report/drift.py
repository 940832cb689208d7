"""How far a split is from the training split, feature by feature.

    distance(train, test, edges)          # two tallies of one feature

The measures are those of TensorFlow Data Validation (https://www.tensorflow.org/tfx/data_validation/get_started): the
L-infinity distance of categories, labels among them, and the Jensen-Shannon divergence (base 2) of the histograms of
numbers. Both lie between 0 and 1. Missing values count as one value more, so that more of them are drift too.

They measure what is there, chance included: in a split of n examples a category that is a half of all drifts by about
0.5 / sqrt(n), and a histogram of 22 bins by about 4 / n.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from components.convert.report.accumulators import Categories, Numbers

_DECIMALS = 6  # of a distance: the last digits of a logarithm are not the same on every machine


def distance(train: Numbers, other: Numbers, edges: Sequence[float]) -> float | None:
    """From 0 to 1, given the edges of both histograms; None if one of them has no examples, or too many categories to compare."""
    measure = categorical if isinstance(train, Categories) else numeric
    counts = train.distribution(edges), other.distribution(edges)
    return measure(*counts) if all(part and sum(part.values()) for part in counts) else None


def categorical(p: Mapping[Any, int], q: Mapping[Any, int]) -> float:
    """The largest difference between the shares of a value."""
    return round(max(abs(a - b) for a, b in _shares(p, q)), _DECIMALS)


def numeric(p: Mapping[Any, int], q: Mapping[Any, int]) -> float:
    """The Jensen-Shannon divergence, base 2, of two histograms with the same bins."""
    return round(math.fsum(_surprise(a, b) + _surprise(b, a) for a, b in _shares(p, q)) / 2, _DECIMALS)


def _shares(p: Mapping[Any, int], q: Mapping[Any, int]) -> list[tuple[float, float]]:
    """The shares of every value in both."""
    everything, others = sum(p.values()), sum(q.values())
    return [(p.get(key, 0) / everything, q.get(key, 0) / others) for key in {**p, **q}]


def _surprise(a: float, b: float) -> float:
    """What a share adds to the divergence of its distribution from the mean of both."""
    return a * math.log2(2 * a / (a + b)) if a else 0.0
