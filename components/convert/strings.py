"""A column of byte strings, as Arrow lays them out, which is needed for nothing but taking rows and counting.

names = Strings.of([b"Cash", b"", b"Mobile"])
names[np.array([2, 0])].tolist()      # [b"Mobile", b"Cash"]
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


@dataclasses.dataclass(frozen=True, kw_only=True)
class Strings:
    """Value i is `data[offsets[i]:offsets[i + 1]]`: data are uint8, offsets int64 [N + 1], lengths int64 [N]."""

    data: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Strings:
        """Returns the column with those values."""
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return cls(data=np.frombuffer(b"".join(values), np.uint8), offsets=offsets, lengths=lengths)

    @classmethod
    def of_arrow(cls, array: pa.LargeBinaryArray | pa.LargeStringArray) -> Strings:
        """Returns the column with the values of an array that has no nulls."""
        if not len(array):
            return cls.of([])
        _, offsets, data = array.buffers()
        offsets = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        data = np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]]
        return cls(data=data, offsets=offsets - offsets[0], lengths=np.diff(offsets))

    @property
    def arrow(self) -> pa.LargeBinaryArray:
        """The column as an array, without a copy."""
        import pyarrow as pa  # tables are read with it, and images do without

        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)

    @property
    def unique(self) -> tuple[Strings, np.ndarray]:
        """Each different value once, and the position among these of every value, [N]."""
        encoded = self.arrow.dictionary_encode()
        return Strings.of_arrow(encoded.dictionary), encoded.indices.to_numpy()

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, rows: np.ndarray | slice) -> Strings:
        """Returns the values at some rows, or where a mask is true; of a slice without a copy."""
        if isinstance(rows, slice):
            return Strings.of_arrow(self.arrow[rows])
        return Strings.of_arrow(self.arrow.take(np.flatnonzero(rows) if rows.dtype == bool else rows))

    def tolist(self) -> list[bytes]:
        """Returns the values."""
        data = self.data.tobytes()
        return [data[start:end] for start, end in itertools.pairwise(self.offsets.tolist())]
