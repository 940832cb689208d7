"""A column of byte strings as two arrays.

names = Strings.of([b"Cash", b"", b"Mobile"])
names[np.array([2, 0])].tolist()      # [b"Mobile", b"Cash"]
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

_BYTES_AT_ONCE = 1 << 18


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
        starts, ends = self.ends[rows] - lengths, np.cumsum(lengths)
        data = np.empty(lengths.sum(), np.uint8)
        # Where each byte comes from takes many times the room of the bytes, so it is worked out for some at a time.
        cuts = np.searchsorted(ends, np.arange(_BYTES_AT_ONCE, len(data), _BYTES_AT_ONCE))
        cuts = np.unique(np.concatenate([[0], cuts, cuts + 1, [len(lengths)]]))  # a value across a cut stands alone
        for first, last in itertools.pairwise(cuts.tolist()):
            part, to = lengths[first:last], data[ends[first] - lengths[first] : ends[last - 1]]
            if last == first + 1:
                to[:] = self.data[starts[first] : starts[first] + len(to)]
            else:
                before = np.cumsum(part) - part
                to[:] = self.data[np.repeat(starts[first:last] - before, part) + np.arange(len(to))]
        return Strings(data=data, lengths=lengths, ends=ends)

    def tolist(self) -> list[bytes]:
        """The values."""
        data = self.data.tobytes()
        return [data[end - length : end] for end, length in zip(self.ends.tolist(), self.lengths.tolist(), strict=True)]
