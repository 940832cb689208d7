"""The most frequent values of a column, whatever their number, in bounded memory.

names = Strings.of([b"Cash", b"Card", b"Cash"])
values = most_frequent(names, Rows(3), 10, held=1_000_000)     # ["Cash", "Card"]
"""

import collections
import heapq
import zlib
from collections.abc import Iterator

import numpy as np

from components.convert.writing.byte_strings import Strings, counts
from components.convert.writing.splits import Rows

_TEXT_BYTES = 1 << 22  # of strings that are looked at together


def most_frequent(column: np.ndarray | Strings, rows: Rows, size: int, *, held: int) -> list[str | int]:
    """So many of the most frequent values of a column at some rows, the most frequent first, equals by value.

    No more than `held` different values are counted at a time: if there are more, they are counted in several passes.
    """
    passes = 1
    while (found := _count(column, rows, size, passes, held)) is None:
        passes *= 2
    ranked = heapq.nsmallest(size, found, key=_rank)
    return [value.decode() if isinstance(value, bytes) else value for value, _ in ranked]


def _pieces(column: np.ndarray | Strings, rows: Rows) -> Iterator[np.ndarray | Strings]:
    """The column's values at the rows, some at a time."""
    for block in rows.blocks():
        step = len(block)
        if isinstance(column, Strings):
            step = max(1, _TEXT_BYTES // max(1, int(column.lengths[block].max())))
        for start in range(0, len(block), step):
            yield column[block[start : start + step]]


def _count(column: np.ndarray | Strings, rows: Rows, size: int, passes: int, held: int) -> list[tuple] | None:
    """The best of each pass, with their counts; None if a pass has too many values."""
    found = []
    for part in range(passes):
        counter = collections.Counter()
        for piece in _pieces(column, rows):
            counter.update({value: n for value, n in counts(piece) if passes == 1 or _hash(value) % passes == part})
            if len(counter) > held:
                return None
        found += heapq.nsmallest(size, counter.items(), key=_rank)
    return found


def _rank(item: tuple) -> tuple:
    value, count = item
    return -count, value


def _hash(value: bytes | int) -> int:
    return zlib.crc32(value if isinstance(value, bytes) else value.to_bytes(8, "little", signed=True))
