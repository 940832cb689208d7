"""How far a split is from the training split, feature by feature, and what is too far.

    distance(train, test, edges)          # two tallies of one feature
    require(manifest.splits, 0.1)

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
from trainer.base.errors import UserError
from trainer.base.manifest import Split

# The threshold that BigQuery's ML.VALIDATE_DATA_DRIFT has by default for either measure
# (https://cloud.google.com/bigquery/docs/reference/standard-sql/bigqueryml-syntax-validate-data-drift).
NOTABLE = 0.3
_MANY = 100  # examples, below which chance alone is notable
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


def require(splits: Mapping[str, Split], threshold: float) -> None:
    """Refuses what is further away than the threshold, and tells of what is `NOTABLE` in splits that are not small."""
    if far := _further(splits, threshold):
        raise UserError(f"--max-drift {threshold:g}: {far}; see what changed in the source, or allow more")
    if far := _further({name: split for name, split in splits.items() if split.examples >= _MANY}, NOTABLE):
        print(f"drift above {NOTABLE}: {far}", flush=True)


def _further(splits: Mapping[str, Split], threshold: float) -> str:
    """What is furthest away, if further than the threshold."""
    found = [
        (distance, f"{feature!r} is {distance:.3f} from train in the {split.examples:,} examples of {name}")
        for name, split in splits.items()
        for feature, distance in (split.drift or {}).items()
        if distance > threshold
    ]
    return max(found)[1] + (f", and {len(found) - 1} more" if found[1:] else "") if found else ""
