"""Statistics of one feature, gathered block by block, by several processes, and put together in any order.

    tally = Numbers(sample)           # the sample, of training examples, says where the histogram has its edges
    part = copy.deepcopy(tally)       # which is empty yet
    part.add(values, missing)
    tally.merge(part)
    tally.summary()

All that is kept are counts and exact sums, so the result is a function of the values alone. The `distribution` of a
feature are its examples by value or by range of values; one without a value, which has the default, counts too.
"""

import collections
import dataclasses
import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from components.convert.report.exact_sum import Sums
from components.convert.writing.byte_strings import Strings, counts
from trainer.base.feature_summary import Summary

_BINS = 20
_TAIL = 100  # one in so many of the sample lies below the lowest edge, and one above the highest
_MOST_CATEGORIES, _MOST_CATEGORY_BYTES = 1 << 16, 1 << 24  # that are counted
_FREQUENT, _LONGEST = 10, 80  # categories that a summary names, and characters of a name
_CHUNK_BYTES = 1 << 17  # of images at once, which take eight times the room while they are summed up


class Numbers:
    """Of float32 or int64 values."""

    def __init__(self, sample: np.ndarray):
        self._edges, self._missing, self._sums = _edges(np.sort(sample)), 0, Sums(sample.dtype)
        self._least, self._most = math.inf, -math.inf
        self._histogram = np.zeros(len(self._edges) + 1, np.int64)

    def add(self, values: np.ndarray, missing: np.ndarray | None = None) -> None:
        """Takes in values [N], and which of them, bool [N], are missing in the source."""
        if missing is not None:
            values = values[~missing]
            self._missing += int(missing.sum())
        if len(values):
            self._sums.add(values)
            self._least, self._most = min(self._least, values.min().item()), max(self._most, values.max().item())
            above = [len(values), *(int(np.count_nonzero(values >= edge)) for edge in self._edges), 0]
            self._histogram += [more - less for more, less in itertools.pairwise(above)]

    def merge(self, other: Self) -> None:
        """Takes in what another one, of the same sample, knows."""
        self._missing += other._missing
        self._sums.merge(other._sums)
        self._least, self._most = min(self._least, other._least), max(self._most, other._most)
        self._histogram += other._histogram

    def distribution(self) -> Mapping[Any, int]:
        """Examples by bin of the histogram; missing ones are a bin too."""
        return {**dict(enumerate(self._histogram.tolist())), None: self._missing}

    def summary(self) -> Summary:
        """All of it."""
        # Adding 0 makes 0.0 of -0.0, which of them NumPy finds being a matter of chance.
        found = {"min": self._least + 0, "max": self._most + 0} if self._sums.count else {}
        return Summary(
            missing=self._missing,
            mean=self._sums.mean,
            std=self._sums.std,
            histogram=tuple(self._histogram.tolist()),
            edges=self._edges,
            **found,
        )


class Pixels(Numbers):
    """Of images of one shape, uint8 [N, height, width, channels]: their brightness, and the pixels by channel."""

    def __init__(self, sample: np.ndarray):
        flat = sample.reshape(len(sample), -1)
        brightness = flat.sum(axis=1, dtype=np.int64) / flat.shape[1]
        super().__init__(brightness.astype(np.float32))
        self._channels = [Sums(sample.dtype) for _ in range(sample.shape[-1])]

    def add(self, values: np.ndarray, missing: np.ndarray | None = None) -> None:
        """Takes in images [N, height, width, channels]."""
        size = math.prod(values.shape[1:])
        step, totals = max(1, _CHUNK_BYTES // size), np.zeros(len(values))
        for start in range(0, len(values), step):
            images, total = values[start : start + step], totals[start : start + step]
            for channel, known in enumerate(self._channels):
                # Whole numbers, and all sums of them below 2**53, so these are exact in whatever order.
                pixels = images[..., channel].astype(np.float64).reshape(len(images), -1)
                sums = pixels.sum(axis=1)
                total += sums
                known.count += pixels.size
                known.total += int(sums.sum())
                known.squares += int(np.einsum("ij,ij->", pixels, pixels))
        super().add((totals / size).astype(np.float32))

    def merge(self, other: Self) -> None:
        """Takes in what another one, of the same sample, knows."""
        super().merge(other)
        for mine, theirs in zip(self._channels, other._channels, strict=True):
            mine.merge(theirs)

    def summary(self) -> Summary:
        """All of it."""
        summary = super().summary()
        if not self._channels[0].count:
            return summary
        mean, std = (tuple(getattr(sums, what) for sums in self._channels) for what in ("mean", "std"))
        return dataclasses.replace(summary, channel_mean=mean, channel_std=std)


class Categories:
    """Of strings, or of integers, which are numbers all the same."""

    def __init__(self, sample: Strings | np.ndarray, vocabulary: Sequence[str | int] | None = None):
        self._known, self._missing, self._all = None, 0, True
        if vocabulary is not None:  # the method of the set: copies of the tally share it
            self._known = {value.encode() if isinstance(value, str) else value for value in vocabulary}.__contains__
        self._numbers = None if isinstance(sample, Strings) else Numbers(sample)
        self._counts: collections.Counter[bytes | int] = collections.Counter()

    def add(self, values: Strings | np.ndarray, missing: np.ndarray | None = None) -> None:
        """Takes in values [N], and which of them, bool [N], are a default."""
        self._missing += 0 if missing is None else int(missing.sum())
        self._count(dict(counts(values)))
        if self._numbers:
            self._numbers.add(values, missing)

    def merge(self, other: Self) -> None:
        """Takes in what another one, of the same sample, knows."""
        self._missing += other._missing
        self._all &= other._all
        self._count(other._counts)
        if self._numbers:
            self._numbers.merge(other._numbers)

    def _count(self, counts: Mapping[bytes | int, int]) -> None:
        self._counts.update(counts)
        room = sum(len(value) for value in self._counts if isinstance(value, bytes))
        self._all = self._all and len(self._counts) <= _MOST_CATEGORIES and room <= _MOST_CATEGORY_BYTES
        if not self._all:  # those of the vocabulary are counted all the same
            kept = filter(self._known, self._counts) if self._known else ()
            self._counts = collections.Counter({value: self._counts[value] for value in kept})

    def count(self, value: bytes | int) -> int:
        """Examples of a category, one of the vocabulary if there are too many."""
        return self._counts[value]

    def distribution(self) -> Mapping[Any, int] | None:
        """Examples by category; None if there are too many."""
        return self._counts if self._all else None

    def summary(self) -> Summary:
        """All of it."""
        summary = self._numbers.summary() if self._numbers else Summary(missing=self._missing)
        if self._known:
            covered = sum(self._counts[value] for value in filter(self._known, self._counts))
            summary = dataclasses.replace(summary, in_vocabulary=covered)
        if not self._all:
            return summary
        frequent = heapq.nsmallest(_FREQUENT, self._counts.items(), key=lambda item: (-item[1], item[0]))
        return dataclasses.replace(
            summary,
            unique=len(self._counts),
            frequent=tuple(v if isinstance(v, int) else cut(v.decode(errors="backslashreplace")) for v, _ in frequent),
            counts=tuple(count for _, count in frequent),
        )


Tally = Numbers | Categories


def _edges(ordered: np.ndarray) -> tuple[float, ...]:
    """Where the histogram of such values has its edges: about equally far apart, but for the lowest and highest."""
    if not len(ordered):
        return ()
    low, high = ordered[len(ordered) // _TAIL].item(), ordered[-1 - len(ordered) // _TAIL].item()
    if ordered.dtype == np.float32:
        inner = [float(np.float32(low + (high - low) * (i / _BINS))) for i in range(_BINS)]
        most = np.finfo(np.float32).max
        last = float(np.nextafter(np.float32(high), most))  # so that the highest is below it, like the others
        return tuple(sorted({*inner, last}))
    width = -(-(high + 1 - low) // _BINS)  # of as many integers in each
    return tuple(range(low, high + 1 + width, width))


def cut(text: str, longest: int = _LONGEST) -> str:
    """As much of a text as people look at."""
    return text if len(text) <= longest else text[: longest - 1] + "…"
