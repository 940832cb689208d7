"""A column of byte strings, as Arrow lays them out, which is needed for nothing but taking rows and counting.

names = Strings.of([b"Cash", b"", b"Mobile"])
names[np.array([2, 0])].tolist()      # [b"Mobile", b"Cash"]
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


SPAN = 1 << 16  # of integers that are counted by their places in it
_TRIED = 1 << 10  # numbers that tell whether few of them are different


@dataclasses.dataclass(frozen=True, kw_only=True)
class Strings:
    """Value i is `data[offsets[i]:offsets[i + 1]]`: data are uint8, offsets int64 [N + 1], lengths int64 [N]."""

    data: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Strings:
        """The column with those values."""
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return cls(data=np.frombuffer(b"".join(values), np.uint8), offsets=offsets, lengths=lengths)

    @classmethod
    def of_arrow(cls, array: pa.LargeBinaryArray | pa.LargeStringArray) -> Strings:
        """The column with the values of an array that has no nulls."""
        if not len(array):
            return cls.of([])
        _, offsets, data = array.buffers()
        offsets = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        data = np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]]
        return cls(data=data, offsets=offsets - offsets[0], lengths=np.diff(offsets))

    @property
    def arrow(self) -> pa.LargeBinaryArray:
        """The same as an array, without a copy."""
        import pyarrow as pa  # tables are read with it, and images do without

        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)

    @property
    def unique(self) -> tuple[Strings, np.ndarray]:
        """Each different value once, and which of them every value is, [N]."""
        encoded = self.arrow.dictionary_encode()
        return Strings.of_arrow(encoded.dictionary), encoded.indices.to_numpy()

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, rows: np.ndarray | slice) -> Strings:
        """The values at the given rows, or where they are true; of a slice without a copy."""
        if isinstance(rows, slice):
            return Strings.of_arrow(self.arrow[rows])
        return Strings.of_arrow(self.arrow.take(np.flatnonzero(rows) if rows.dtype == bool else rows))

    def tolist(self) -> list[bytes]:
        """The values."""
        data = self.data.tobytes()
        return [data[start:end] for start, end in itertools.pairwise(self.offsets.tolist())]


def counts(values: Strings | np.ndarray) -> Iterator[tuple[bytes | int, int]]:
    """Each different value of a column of strings or integers, with how many there are."""
    if isinstance(values, Strings):
        counted = values.arrow.value_counts()
        return zip(*(counted.field(part).to_pylist() for part in ("values", "counts")), strict=True)
    found = few(values) or np.unique(values, return_counts=True)
    return zip(*(part.tolist() for part in found), strict=True)


def few(values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The different ones of some numbers, and how many there are of each; None if too many differ for it to be cheap."""
    if not len(values):
        return values, np.empty(0, np.int64)
    if values.dtype != np.float32 and int(values.max()) - (least := int(values.min())) < SPAN:
        counts = np.bincount(values - least)
        found = np.flatnonzero(counts)
        return found + least, counts[found]
    step = len(values) // _TRIED
    if step < 2 or len(np.unique(values[::step])) > _TRIED // 2:
        return None
    import pyarrow as pa

    counted = pa.array(values).value_counts()
    return counted.field("values").to_numpy(), counted.field("counts").to_numpy()
