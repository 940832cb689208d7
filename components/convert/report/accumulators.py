"""Statistics of one feature, gathered block by block, by any processes, and put together.

    tally = Numbers(np.float32)
    tally.add(values, missing)
    tally.absorb(other.state())          # JSON; of the same type
    tally.summary(tally.edges([tally]))

Counts are exact; the same parts in the same order give the same sums. The `distribution` of a
feature are its examples by value or by range of values; one without a value, which has the default, counts too.
"""

import collections
import dataclasses
import heapq
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from common.manifest import Summary
from components.convert.report.bins import Bins
from components.convert.report.moments import Moments
from components.convert.writing.byte_strings import Strings, counts, few

_MOST_CATEGORIES, _MOST_CATEGORY_BYTES = 1 << 16, 1 << 22  # that are counted
_FREQUENT, _LONGEST = 10, 80  # categories that a summary names, and characters of a name
_CHUNK_BYTES = 1 << 17  # of images at once, which take eight times the room while they are summed up


class Numbers:
    """Of float32 or int64 values."""

    def __init__(self, dtype: np.typing.DTypeLike = np.float32):
        self._missing, self._moments, self._bins = 0, Moments(), Bins(dtype)
        self._range: list[float] = []

    def add(self, values: np.ndarray, missing: np.ndarray | None = None) -> None:
        """Takes in values [N], and which of them, bool [N], are missing in the source."""
        if missing is not None:
            values = values[~missing]
            self._missing += int(missing.sum())
        if len(values):
            values, counts = few(values) or (values, np.ones(len(values), np.int64))
            self._moments.add(values, counts)
            self._bins.add(values, counts)
            # Adding 0 makes 0.0 of -0.0, which of them NumPy finds being a matter of chance.
            self._widen([values.min().item() + 0, values.max().item() + 0])

    def state(self) -> Any:
        """All of it, as JSON."""
        return self._missing, self._range, self._moments.state(), self._bins.state()

    def absorb(self, state: Any) -> None:
        """Takes in what another one knows."""
        missing, ends, moments, bins = state
        self._missing += missing
        self._widen(ends)
        self._moments.absorb(moments)
        self._bins.absorb(bins)

    def _widen(self, ends: Sequence[float]) -> None:
        known = [*self._range, *ends]
        self._range = [min(known), max(known)] if known else []

    def edges(self, splits: Iterable[Self]) -> tuple[float, ...]:
        """Of the histograms of some splits, this one among them, which says what the central values are."""
        return self._bins.edges(max(split._bins.level for split in splits))

    def distribution(self, edges: Sequence[float]) -> Mapping[Any, int] | None:
        """Examples by bin of the histogram; missing ones are a bin too."""
        return {**dict(enumerate(self._bins.histogram(edges))), None: self._missing}

    def summary(self, edges: tuple[float, ...]) -> Summary:
        """All of it, in a histogram with such edges."""
        return Summary(
            missing=self._missing,
            mean=self._moments.mean,
            std=self._moments.std,
            histogram=self._bins.histogram(edges),
            edges=edges,
            **dict(zip(("min", "max"), self._range, strict=False)),
        )


class Pixels(Numbers):
    """Of images of one shape, uint8 [N, height, width, channels]: their brightness, and the pixels by channel."""

    def __init__(self, channels: int):
        super().__init__()
        # By channel, pixels, their sum and that of their squares, all whole numbers.
        self._channels = [[0, 0, 0] for _ in range(channels)]

    def add(self, values: np.ndarray, missing: np.ndarray | None = None) -> None:
        """Takes in images [N, height, width, channels]."""
        size = math.prod(values.shape[1:])
        step, totals = max(1, _CHUNK_BYTES // size), np.zeros(len(values))
        for start in range(0, len(values), step):
            images, total = values[start : start + step], totals[start : start + step]
            for channel, known in enumerate(self._channels):
                pixels = images[..., channel].astype(np.float64).reshape(len(images), -1)
                sums = pixels.sum(axis=1)
                total += sums
                _add(known, (pixels.size, int(sums.sum()), int(np.einsum("ij,ij->", pixels, pixels))))
        super().add((totals / size).astype(np.float32))

    def state(self) -> Any:
        """All of it, as JSON."""
        return super().state(), self._channels

    def absorb(self, state: Any) -> None:
        """Takes in what another one knows."""
        brightness, channels = state
        super().absorb(brightness)
        for mine, theirs in zip(self._channels, channels, strict=True):
            _add(mine, theirs)

    def summary(self, edges: tuple[float, ...]) -> Summary:
        """All of it, in a histogram with such edges."""
        summary = super().summary(edges)
        if not self._channels[0][0]:
            return summary
        mean = tuple(total / count for count, total, _ in self._channels)
        std = tuple(math.sqrt(count * squares - total**2) / count for count, total, squares in self._channels)
        return dataclasses.replace(summary, channel_mean=mean, channel_std=std)


def _add(sums: list[int], more: Sequence[int]) -> None:
    for i, number in enumerate(more):
        sums[i] += number


class Categories(Numbers):
    """Of strings, or of integers, which are numbers all the same.

    If there are too many, those of the vocabulary are counted all the same. Whether there are follows from all values,
    in whatever parts they come.
    """

    def __init__(self, dtype: str, vocabulary: Collection[bytes | int] | None = None):
        super().__init__(np.int64)
        self._texts, self._known, self._all, self._bytes = dtype == "string", vocabulary, True, 0
        self._counts: collections.Counter[bytes | int] = collections.Counter()

    def add(self, values: Strings | np.ndarray, missing: np.ndarray | None = None) -> None:
        """Takes in values [N], and which of them, bool [N], are a default."""
        if self._texts:
            self._missing += 0 if missing is None else int(missing.sum())
        else:
            super().add(values, missing)
        if self._all or self._known:
            self._count(dict(counts(values)))

    def state(self) -> Any:
        """All of it, as JSON."""
        values = [v if isinstance(v, int) else v.decode(errors="surrogateescape") for v in self._counts]
        return super().state(), self._all, values, list(self._counts.values())

    def absorb(self, state: Any) -> None:
        """Takes in what another one, of the same vocabulary, knows."""
        numbers, everything, values, found = state
        super().absorb(numbers)
        self._all &= everything
        values = [v if isinstance(v, int) else v.encode(errors="surrogateescape") for v in values]
        self._count(dict(zip(values, found, strict=True)))

    def _count(self, counts: Mapping[bytes | int, int]) -> None:
        if self._texts:
            self._bytes += sum(len(value) for value in counts if value not in self._counts)
        self._counts.update(counts)
        self._all &= len(self._counts) <= _MOST_CATEGORIES and self._bytes <= _MOST_CATEGORY_BYTES
        if not self._all:
            kept = {value: n for value, n in self._counts.items() if value in (self._known or ())}
            self._counts = collections.Counter(kept)

    def count(self, value: bytes | int) -> int:
        """Examples of a category, one of the vocabulary if there are too many."""
        return self._counts[value]

    def distribution(self, edges: Sequence[float]) -> Mapping[Any, int] | None:
        """Examples by category; None if there are too many."""
        return self._counts if self._all else None

    def summary(self, edges: tuple[float, ...]) -> Summary:
        """All of it."""
        summary = Summary(missing=self._missing) if self._texts else super().summary(edges)
        if self._known is not None:
            covered = sum(n for value, n in self._counts.items() if value in self._known)
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


def cut(text: str, longest: int = _LONGEST) -> str:
    """As much of a text as people look at."""
    return text if len(text) <= longest else text[: longest - 1] + "…"
