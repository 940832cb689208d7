"""The most frequent values of a column, or words in its texts, whatever their number, in bounded memory.

names = Strings.of([b"Cash", b"Card", b"Cash"])
values = most_frequent(names, Rows(3), 10, held=1_000_000)     # ["Cash", "Card"]
texts = Strings.of([b"Paid, in cash.", b"Cash!"])
most_frequent(texts, Rows(2), 1, held=1_000_000, of=words)     # ["cash"]
"""

import collections
import heapq
import string
import zlib
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from components.convert.writing.byte_strings import Strings, counts
from components.convert.writing.splits import Rows

_TEXT_BYTES = 1 << 22  # of strings that are looked at together
_PUNCTUATION = string.punctuation.encode()
# From some values of a column to what is counted in them, each once, with how many there are.
_Counts = Callable[[np.ndarray | Strings], Iterable[tuple[bytes | int, int]]]


def words(texts: Strings) -> Iterable[tuple[bytes, int]]:
    """Each different word of some texts, with how many there are.

    Words are those of `keras.layers.TextVectorization` unless it is told otherwise: ASCII letters are made small, ASCII
    punctuation is taken out, and ASCII white space is between words.
    """
    return collections.Counter(b" ".join(texts.tolist()).lower().translate(None, _PUNCTUATION).split()).items()


def most_frequent(
    column: np.ndarray | Strings, rows: Rows, size: int, *, held: int, of: _Counts = counts
) -> list[str | int]:
    """So many of the most frequent values of a column at some rows, the most frequent first, equals by value.

    No more than `held` different values are counted at a time: if there are more, they are counted in several passes.
    With `of=words` they are not values but words.
    """
    passes = 1
    while (found := _count(column, rows, size, passes, held, of)) is None:
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


def _count(
    column: np.ndarray | Strings, rows: Rows, size: int, passes: int, held: int, of: _Counts
) -> list[tuple] | None:
    """The best of each pass, with their counts; None if a pass has too many values."""
    found = []
    for part in range(passes):
        counter = collections.Counter()
        for piece in _pieces(column, rows):
            counter.update({value: n for value, n in of(piece) if passes == 1 or _hash(value) % passes == part})
            if len(counter) > held:
                return None
        found += heapq.nsmallest(size, counter.items(), key=_rank)
    return found


def _rank(item: tuple) -> tuple:
    value, count = item
    return -count, value


def _hash(value: bytes | int) -> int:
    return zlib.crc32(value if isinstance(value, bytes) else value.to_bytes(8, "little", signed=True))
