"""Whole records of a text file: lines, and of a CSV file what the rules of RFC 4180 say and no others.

    with open(path, "rb") as file:
        for chunk in chunks(path, file, ","):
            for cells in chunk.rows(): ...

A quote opens a value only where the value starts and closes it only where the value ends; inside of a quoted value it is
written twice. Anything else is refused with its line and column: a reader that guesses takes all up to the next quote
for one value, and the rows in between are gone. What is refused here no later reader can misread.
"""

import codecs
import csv
import dataclasses
import io
import itertools
import math
import re
from collections.abc import Collection, Iterator
from typing import IO, Self

import numpy as np

from common.errors import UserError, about

BLOCK_BYTES, MOST_BYTES = 1 << 22, 1 << 24  # parsed at once; that no record may reach
_TAIL_BYTES = 1 << 12  # in which the last record usually ends
_NONE = np.empty(0, np.int64)
_QUOTE, _LF, _CR = b'"\n\r'
_FIRST = re.compile(rb'[\r\n]*((?:[^"\r\n]|"[^"]*")*+)(?:\r\n?|\n|\Z)')  # of records that are known to be right


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunk:
    """Some records of a file, none of them cut.

    Attributes:
      text: All of them; they may stand behind blank lines.
      start: Byte of the content at which it begins.
      line: On which it begins, counted from 1.
      delimiter: Between values; None if quotes mean nothing, and each line is a record.
      quotes: Where the quotes are in the text, if they mean something.
    """

    text: bytes
    start: int
    line: int
    delimiter: str | None
    quotes: np.ndarray = dataclasses.field(default_factory=lambda: _NONE)

    @property
    def starts(self) -> np.ndarray:
        """Where records start in the text."""
        text = np.frombuffer(self.text, np.uint8)
        blank = text == _LF
        if b"\r" in self.text:
            blank |= text == _CR
        starts = np.flatnonzero(blank[:-1] > blank[1:]) + 1
        starts = starts if blank[:1].all() else np.concatenate([np.zeros(1, np.int64), starts])
        return starts[np.searchsorted(self.quotes, starts) % 2 == 0] if len(self.quotes) else starts

    def halves(self) -> tuple[Self, Self]:
        """The first half of two or more records, and the others; lines are not told in them any more."""
        at = int(self.starts[len(self.starts) // 2])
        before, behind = self.quotes[self.quotes < at], self.quotes[self.quotes >= at] - at
        return (
            dataclasses.replace(self, text=self.text[:at], quotes=before),
            dataclasses.replace(self, text=self.text[at:], quotes=behind),
        )

    def without(self, rows: Collection[int]) -> Self:
        """The other records, as one text, by which nothing can be located any more."""
        kept = enumerate(itertools.pairwise([*self.starts, len(self.text)]))
        text = b"".join(self.text[a:b] for row, (a, b) in kept if row not in rows)
        return dataclasses.replace(self, text=text, quotes=_NONE)

    def line_of(self, at: int) -> int:
        """The line on which a byte of the text stands."""
        return self.line + _line_ends(self.text[:at])

    def rows(self) -> Iterator[list[str]]:
        """Of each record its values; blank lines are no records. Bytes that are not UTF-8 become surrogates."""
        csv.field_size_limit(2 * MOST_BYTES)  # of this whole process
        file = io.StringIO(self.text.decode("utf-8", "surrogateescape"), newline="")
        return filter(None, csv.reader(file, delimiter=self.delimiter, strict=True))

    def without_first(self) -> Self:
        """The records behind the first one."""
        end = _FIRST.match(self.text).end()
        quotes = self.quotes[self.quotes >= end] - end
        place = {"start": self.start + end, "line": self.line_of(end)}
        return dataclasses.replace(self, text=self.text[end:], quotes=quotes, **place)

    def place(self, at: int) -> str:
        """Line and column of a byte, the first of which are 1; a column is a character."""
        before = self.text[:at]
        line_start = max(before.rfind(b"\n"), before.rfind(b"\r")) + 1
        column = len(before[line_start:].decode("utf-8", "replace")) + 1
        return f"line {self.line_of(at)}, column {column}"


def chunks(
    path: str,
    file: IO[bytes],
    delimiter: str | None,
    *,
    start: int = 0,
    stop: float = math.inf,
    line: int = 1,
    block_bytes: int | None = None,
) -> Iterator[Chunk]:
    """The records of a file that has been read up to `start`, on that line; a mark of UTF-8 at byte 0 is passed over.

    So many bytes are read at once.

    Raises:
      UserError: If a quote stands where none may, or a value or a record has no end; it names the place.
    """
    text, at = b"", start
    mark = codecs.BOM_UTF8
    if not start and not (text := file.read(int(min(len(mark), stop))).removeprefix(mark)):
        start = at = len(mark)
    at += len(text)
    while True:
        block = file.read(int(min(block_bytes or BLOCK_BYTES, stop - at)))
        while block.endswith(b"\r") and (
            more := file.read(at + len(block) < stop)
        ):  # a line feed is one line end with it
            block += more
        at += len(block)
        chunk = Chunk(text=text + block, start=start, line=line, delimiter=delimiter)
        with about(path):
            chunk, text = _whole(chunk, final=not block)
        if chunk.text:
            start, line = start + len(chunk.text), chunk.line_of(len(chunk.text))
            yield chunk
        if not block:
            return


def _whole(chunk: Chunk, *, final: bool) -> tuple[Chunk, bytes]:
    """The whole records of a chunk, which may be cut anywhere unless it is the final one, and the rest of its text."""
    text, quotes = chunk.text, _NONE
    if (at := text.find(b"\0")) >= 0:
        raise UserError(f"{chunk.place(at)}: a zero byte; is it text in UTF-8?")
    if chunk.delimiter is None or b'"' not in text:
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
    else:
        padded = np.frombuffer(b"\n" + text + b"\n", np.uint8)  # with them each quote has a neighbour
        quotes = np.flatnonzero(padded[1:-1] == _QUOTE)
        _check(chunk, padded, quotes)
        for tail in (max(0, len(text) - _TAIL_BYTES), 0):
            ends = np.flatnonzero((padded[tail + 1 : -1] == _LF) | (padded[tail + 1 : -1] == _CR)) + tail
            ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
            end = int(ends[-1]) + 1 if len(ends) else 0
            if end:
                break
    if final or (not end and len(text) >= MOST_BYTES):
        if len(quotes) % 2:
            opening = chunk.place(_opening(quotes, len(quotes) - 1))
            raise UserError(f"{opening}: the value that a quote opens here has no end")
        if not final:
            raise UserError(f"line {chunk.line}: no line end in {len(text):,} bytes; is it a text file?")
        end = len(text)
    if end == len(text):
        return dataclasses.replace(chunk, quotes=quotes), b""
    return dataclasses.replace(chunk, text=text[:end], quotes=quotes[: np.searchsorted(quotes, end)]), text[end:]


def _check(chunk: Chunk, padded: np.ndarray, quotes: np.ndarray) -> None:
    """Raises for the first quote that stands where none may; padded is the text between two line ends.

    Every other quote opens a value, and the next one closes it. Of two quotes for one within a value the first closes
    and the second opens it again. So it is enough to look at what stands before the one kind and behind the other, and
    up to the first that is wrong there is no other way to read them.
    """
    allowed = np.isin(np.arange(256), list(b'\r\n"' + chunk.delimiter.encode()))
    right = np.empty(len(quotes), bool)
    right[::2] = allowed[padded[quotes[::2]]]
    right[1::2] = allowed[padded[quotes[1::2] + 2]]
    if right.all():
        return
    i = int(right.argmin())
    place, repair = chunk.place(int(quotes[i])), "write a quote within a value twice, and the value in quotes"
    repair += f"; values have to stand between {chunk.delimiter!r}"
    if i % 2 == 0:
        raise UserError(f"{place}: a quote in a value that does not start with one; {repair}")
    opening = chunk.place(_opening(quotes, i))
    raise UserError(f"{place}: text follows the quote that closes the value from {opening}; {repair}")


def _opening(quotes: np.ndarray, i: int) -> int:
    """Position in the text of the quote that opens the value in which the i-th one stands."""
    i -= i % 2
    while i and quotes[i - 1] == quotes[i] - 1:
        i -= 2
    return int(quotes[i])


def _line_ends(text: bytes) -> int:
    values = np.frombuffer(text, np.uint8)
    feeds, found = values == _LF, 0
    if b"\r" in text:
        returns = values == _CR
        found = np.count_nonzero(returns[:-1] > feeds[1:]) + returns[-1]
    return int(found + np.count_nonzero(feeds))
