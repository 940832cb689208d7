"""The most frequent values of a column, or words in its texts, in bounded memory.

names = Frequencies()
names.add(counts(Strings.of([b"Cash", b"Card", b"Cash"])))
names.best(10, "payment")                               # ["Cash", "Card"]
words(Strings.of([b"Paid, in cash.", b"Cash!"]))        # (b"paid", 1), (b"in", 1), (b"cash", 2)
"""

import collections
import heapq
import string
from collections.abc import Iterable
from typing import Any

from components.convert.writing.byte_strings import Strings

HELD = 1 << 18  # different values that are counted, each for itself
_PUNCTUATION = string.punctuation.encode()


def words(texts: Strings) -> Iterable[tuple[bytes, int]]:
    """Each different word of some texts, with how many there are.

    Words are those of `keras.layers.TextVectorization` unless it is told otherwise: ASCII letters are made small, ASCII
    punctuation is taken out, and ASCII white space is between words.
    """
    return collections.Counter(b" ".join(texts.tolist()).lower().translate(None, _PUNCTUATION).split()).items()


class Frequencies:
    """How often values occur: exactly while at most `HELD` differ.

    If there are more, the rarer ones are forgotten, and all counts are less than they should be by one number, which is
    known, and is at most 2 in `HELD` of all that was counted (Misra and Gries, Finding repeated elements, 1982).
    """

    def __init__(self) -> None:
        self._counts, self._error = collections.Counter(), 0

    def add(self, counted: Iterable[tuple[Any, int]], error: int = 0) -> None:
        """Takes in different values with how often they occur, which may be more often by the error."""
        for value, count in counted:
            self._counts[value] += count
        self._error += error
        if len(self._counts) > HELD:
            forgotten = heapq.nlargest(HELD // 2 + 1, self._counts.values())[-1]
            self._error += forgotten
            kept = {value: count - forgotten for value, count in self._counts.items() if count > forgotten}
            self._counts = collections.Counter(kept)

    @property
    def state(self) -> list[Any]:
        """What `add` takes, as JSON."""
        decoded = [(v.decode() if isinstance(v, bytes) else v, count) for v, count in self._counts.items()]
        return [decoded, self._error]

    def best(self, size: int, column: str) -> list[str | int]:
        """So many of the most frequent values, the most frequent first, equals by value; tells if they are not certain."""
        if self._error:
            print(
                f"{column}: more than {HELD:,} different values; of rare ones the counts, by which its vocabulary is "
                f"chosen, may be too small by {self._error:,}",
                flush=True,
            )
        ranked = heapq.nsmallest(size, self._counts.items(), key=lambda item: (-item[1], item[0]))
        return [value.decode() if isinstance(value, bytes) else value for value, _ in ranked]
