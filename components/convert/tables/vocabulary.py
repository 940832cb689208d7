"""The most frequent values of a column, or words in its texts.

names = Frequencies()
names.add(counts(Strings.of([b"Cash", b"Card", b"Cash"])))
names.best(10)                                          # ["Cash", "Card"]
words(Strings.of([b"Paid, in cash.", b"Cash!"]))        # (b"paid", 1), (b"in", 1), (b"cash", 2)
"""

import collections
import heapq
import string
from collections.abc import Iterable
from typing import Any

from components.convert.writing.byte_strings import Strings

_PUNCTUATION = string.punctuation.encode()


def words(texts: Strings) -> Iterable[tuple[bytes, int]]:
    """Each different word of some texts, with how many there are.

    Words are those of `keras.layers.TextVectorization` unless it is told otherwise: ASCII letters are made small, ASCII
    punctuation is taken out, and ASCII white space is between words.
    """
    return collections.Counter(b" ".join(texts.tolist()).lower().translate(None, _PUNCTUATION).split()).items()


class Frequencies:
    """How often values occur."""

    def __init__(self) -> None:
        self._counts: collections.Counter[Any] = collections.Counter()

    def add(self, counted: Iterable[tuple[Any, int]]) -> None:
        """Takes in different values with how often they occur."""
        for value, count in counted:
            self._counts[value] += count

    @property
    def state(self) -> list[Any]:
        """What `add` takes, as JSON."""
        return [(v.decode() if isinstance(v, bytes) else v, count) for v, count in self._counts.items()]

    def best(self, size: int) -> list[str | int]:
        """So many of the most frequent values, the most frequent first, equals by value."""
        ranked = heapq.nsmallest(size, self._counts.items(), key=lambda item: (-item[1], item[0]))
        return [value.decode() if isinstance(value, bytes) else value for value, _ in ranked]
