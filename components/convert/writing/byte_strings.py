"""A column of byte strings as two arrays.

names = Strings.of([b"Cash", b"", b"Mobile"])
names[np.array([2, 0])].tolist()      # [b"Mobile", b"Cash"]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class Strings:
    """Value i is `data[ends[i] - lengths[i]:ends[i]]`.

    Attributes:
      data: uint8, the values one after another.
      lengths: int64 [N], bytes of each.
      ends: int64 [N], the sum of the lengths up to each; computed unless given.
    """

    data: np.ndarray
    lengths: np.ndarray
    ends: np.ndarray | None = None

    def __post_init__(self):
        if self.ends is None:
            object.__setattr__(self, "ends", np.cumsum(self.lengths))

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Strings:
        """The column with those values."""
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        return cls(data=np.frombuffer(b"".join(values), np.uint8), lengths=lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, rows: np.ndarray) -> Strings:
        """The values at the given rows."""
        lengths = self.lengths[rows]
        starts = self.ends[rows] - lengths
        positions = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        return Strings(data=self.data[positions], lengths=lengths)

    def tolist(self) -> list[bytes]:
        """The values."""
        data = self.data.tobytes()
        return [data[end - length : end] for end, length in zip(self.ends.tolist(), self.lengths.tolist(), strict=True)]
