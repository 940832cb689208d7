"""Whole records of a CSV file, found by the rules of RFC 4180 and no others.

    with open(path, "rb") as file:
        for chunk in chunks(path, file, ","):
            for line, cells in chunk.rows(): ...

A quote opens a value only where the value starts and closes it only where the value ends; inside of a quoted value it is
written twice. Anything else is refused with its line and column: a reader that guesses takes all up to the next quote
for one value, and the rows in between are gone. What is refused here no later reader can misread.
"""

import codecs
import csv
import dataclasses
import io
import pathlib
import re
from collections.abc import Iterator
from typing import IO, Self

import numpy as np

from trainer.base.errors import UserError, about

BLOCK_BYTES, MOST_BYTES = 1 << 20, 1 << 24  # read at once; that no record may reach
_QUOTE, _LF, _CR = b'"\n\r'
_FIRST = re.compile(rb'[\r\n]*((?:[^"\r\n]|"[^"]*")*+)(?:\r\n?|\n|\Z)')  # of records that are known to be right


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunk:
    """Some records of a file, none of them cut; the first one starts on that line, counted from 1."""

    text: bytes
    line: int
    delimiter: str

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Of each record the line that it starts on and its values; blank lines are no records.

        Bytes that are not UTF-8 become surrogates.
        """
        csv.field_size_limit(2 * MOST_BYTES)  # of this whole process
        file = io.StringIO(self.text.decode("utf-8", "surrogateescape"), newline="")
        reader, line = csv.reader(file, delimiter=self.delimiter, strict=True), self.line
        for cells in reader:
            if cells:
                yield line, cells
            line = self.line + reader.line_num

    def without_first(self) -> Self:
        """The records behind the first one."""
        end = _FIRST.match(self.text).end()
        return dataclasses.replace(self, text=self.text[end:], line=self.line + _line_ends(self.text[:end]))

    def place(self, at: int) -> str:
        """Line and column of a byte, the first of which are 1; a column is a character."""
        before = self.text[:at]
        line_start = max(before.rfind(b"\n"), before.rfind(b"\r")) + 1
        column = len(before[line_start:].decode("utf-8", "replace")) + 1
        return f"line {self.line + _line_ends(before)}, column {column}"


def chunks(path: pathlib.Path, file: IO[bytes], delimiter: str) -> Iterator[Chunk]:
    """All records in the content of the file at that path; a mark of UTF-8 at its start is passed over.

    Raises:
      UserError: If a quote stands where none may, or a value or a record has no end; it names the place.
    """
    text, line = file.read(len(codecs.BOM_UTF8)).removeprefix(codecs.BOM_UTF8), 1
    while True:
        block = file.read(BLOCK_BYTES)
        while block.endswith(b"\r") and (more := file.read(1)):  # a line feed may follow, and both are one line end
            block += more
        chunk = Chunk(text=text + block, line=line, delimiter=delimiter)
        with about(path):
            end = _end(chunk, final=not block)
        text = chunk.text[end:]
        if end:
            chunk = dataclasses.replace(chunk, text=chunk.text[:end])
            line += _line_ends(chunk.text)
            yield chunk
        if not block:
            return


def _end(chunk: Chunk, *, final: bool) -> int:
    """How many bytes of a chunk, which may be cut anywhere unless it is the final one, are whole records."""
    text, quotes = chunk.text, ()
    if (at := text.find(b"\0")) >= 0:
        raise UserError(f"{chunk.place(at)}: a zero byte; is it a CSV file in UTF-8?")
    if b'"' not in text:
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
    else:
        padded = np.frombuffer(b"\n" + text + b"\n", np.uint8)  # with them each quote has a neighbour
        quotes = np.flatnonzero(padded == _QUOTE)
        _check(chunk, padded, quotes)
        ends = np.flatnonzero((padded == _LF) | (padded == _CR))[:-1]
        end = int(ends[np.searchsorted(quotes, ends) % 2 == 0][-1])
    if not final and (end or len(text) < MOST_BYTES):
        return end
    if len(quotes) % 2:
        opening = chunk.place(_opening(quotes, len(quotes) - 1))
        raise UserError(f"{opening}: the value that a quote opens here has no end")
    if not final:
        raise UserError(f"line {chunk.line}: no line end in {len(text):,} bytes; is it a CSV file?")
    return len(text)


def _check(chunk: Chunk, padded: np.ndarray, quotes: np.ndarray) -> None:
    """Raises for the first quote that stands where none may.

    Every other quote opens a value, and the next one closes it. Of two quotes for one within a value the first closes
    and the second opens it again. So it is enough to look at what stands before the one kind and behind the other, and
    up to the first that is wrong there is no other way to read them.
    """
    allowed = np.isin(np.arange(256), list(b'\r\n"' + chunk.delimiter.encode()))
    right = np.empty(len(quotes), bool)
    right[::2] = allowed[padded[quotes[::2] - 1]]
    right[1::2] = allowed[padded[quotes[1::2] + 1]]
    if right.all():
        return
    i = int(right.argmin())
    place, repair = chunk.place(int(quotes[i]) - 1), "write a quote within a value twice, and the value in quotes"
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
    return int(quotes[i]) - 1


def _line_ends(text: bytes) -> int:
    feeds = np.count_nonzero(np.frombuffer(text, np.uint8) == _LF)
    return feeds + (text.count(b"\r") - text.count(b"\r\n") if b"\r" in text else 0)
