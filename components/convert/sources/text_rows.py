"""Rows of text files: CSV as RFC 4180 has it, read strictly, and JSON objects in lines; with the line of each.

for first, last, cells in read_records("trips.csv", ","): ...
for number, num_characters, values in read_objects("trips.jsonl", schema): ...      # or what is wrong in place of the values
"""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from common.errors import UserError, first_line, unknown
from common.spellings import EITHER
from components.convert.schema import TableSchema

MAX_BYTES = 1 << 24  # Of a text; also characters of a line or record.
_SCANNED_BYTES = 1 << 20
FINITE = "finite 32-bit number"
KINDS = {
    "float": FINITE,
    "int": "64-bit whole number",
    "string": "text in UTF-8 of at most 16 MiB",
    "bool": f"boolean, which is {EITHER}",
    "time": "date or time as in ISO 8601",
}
_JSON = {"float": {float, int}, "int": {int}, "bool": {bool}, "string": {str}, "time": {str}}
_SURROGATE = re.compile("[\ud800-\udfff]")  # As which bytes are read that are not UTF-8.
Row = tuple[int, int, "list[str | None] | str"]


def refuse_others(names: Set[str], wanted: Set[str], schema: TableSchema) -> None:
    """Raises a `UserError` if there are names that are not wanted, unless the schema ignores them."""
    if not schema.ignore_others and (others := sorted(names - wanted)):
        raise UserError(f"{unknown('column', others[0], wanted)}; add it to the schema, or 'other_columns: ignore'")


def check_names(names: Sequence[str], schema: TableSchema) -> None:
    """Raises a `UserError` unless each column of the schema is there once, and others only if the schema ignores them."""
    wanted = {column.header: None for column in schema.columns.values()}
    refuse_others({*names}, wanted.keys(), schema)
    counts = collections.Counter(names)
    for header in wanted:
        if counts[header] != 1:
            fault = f"column {header!r} is there more than once" if counts[header] else f"has no column {header!r}"
            raise UserError(f"{fault} (it has {', '.join(map(repr, names))})")


def scan_csv(path: str, delimiter: str) -> tuple[bool, bool]:
    """Returns whether DuckDB takes all of a CSV file as RFC 4180 does, and whether it has quotes."""
    allowed = np.isin(np.arange(256), list(b'\r\n"' + delimiter.encode()))
    last, is_open, has_quotes = b"\n", 0, False
    with open(path, "rb") as file:
        while block := file.read(_SCANNED_BYTES):
            while block.endswith((b"\r", b'"')) and (more := file.read(1)):  # What follows tells what they mean.
                block += more
            if b"\0" in block or block.count(b"\r") != block.count(b"\r\n"):
                return False, True
            if b'"' in block:
                padded = np.frombuffer(last + block + b"\n", np.uint8)
                quotes = np.flatnonzero(padded[1:-1] == ord('"'))
                before, behind = padded[quotes[is_open::2]], padded[quotes[1 - is_open :: 2] + 2]
                if not (allowed[before].all() and allowed[behind].all()):
                    return False, True
                has_quotes, is_open = True, (is_open + len(quotes)) % 2
            last = block[-1:]
    return not is_open, has_quotes


def _lines(path: str) -> Iterator[tuple[int, str]]:
    """Yields the lines of a text file with their numbers from 1; bytes that are not UTF-8 become surrogates."""
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_BYTES), ""), 1):
            if "\0" in line:
                raise UserError(f"line {number}: a zero byte; is it text in UTF-8?")
            if len(line) == MAX_BYTES:
                raise UserError(f"line {number}: no line end in {MAX_BYTES:,} characters; is it a text file?")
            yield number, line.removeprefix("\ufeff") if number == 1 else line


def read_records(path: str, delimiter: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yields the first and last line and the values of each record of a CSV file, read strictly."""
    value = rf'"[^"]*(?:""[^"]*)*+"|[^"{delimiter}]*'
    record = re.compile(rf"(?:{value})(?:[{delimiter}](?:{value}))*+")
    begun = re.compile(rf'(?:(?:{value})[{delimiter}])*+"[^"]*(?:""[^"]*)*+')
    cell = re.compile(rf"(?:^|[{delimiter}])({value})")
    repair = "write a quote within a value twice, and the value in quotes; values have to stand between"
    text, first, is_open = "", 1, False
    for number, line in _lines(path):
        first = first if text else number
        text += line
        is_open ^= line.count('"') % 2
        if is_open and (text is not line or begun.fullmatch(line)):
            if len(text) < MAX_BYTES:
                continue
            break
        text = text.rstrip("\r\n")
        if '"' not in text:
            cells = text.split(delimiter)
        elif record.fullmatch(text):
            cells = [c[1:-1].replace('""', '"') if c.startswith('"') else c for c in cell.findall(text)]
        else:
            raise UserError(
                f"line {first}: a quote in a value that does not start with one, or text behind a closing quote; "
                f"{repair} {delimiter!r}"
            )
        if text:
            yield first, number, cells
        text = ""
    if text:
        raise UserError(f"line {first}: the value that a quote opens here has no end")


def check_records(
    records: Iterator[tuple[int, int, list[str]]], count: int, columns: Mapping[str, int]
) -> Iterator[Row]:
    """Yields the wanted values of records, which have so many values."""
    for number, _, cells in records:
        if len(cells) == count:
            values = [cells[i] for i in columns.values()]
            yield number, sum(map(len, values)), _encoding_fault(columns, values) or values
        else:
            yield number, 0, f"{len(cells)} values; the header has {count}"


def read_objects(path: str, schema: TableSchema) -> Iterator[Row]:
    """Yields the wanted values of JSON objects as texts."""
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)
    columns = [*schema.columns.values()]
    headers = {column.header for column in columns}
    fitting: set[tuple[type, ...]] = set()
    for number, line in _lines(path):
        if not (line := line.rstrip("\r\n")):
            continue
        try:
            row = decoder.decode(line)
            if not isinstance(row, dict):
                raise UserError(f"{line[:40]!r} is no JSON object, which has a line of its own")
            if not row.keys() <= headers:
                refuse_others(row.keys(), headers, schema)
            values = [row.get(column.header) for column in columns]
            if (kinds := tuple(map(type, values))) not in fitting:
                for column, value in zip(columns, values, strict=True):
                    if value is not None and type(value) not in _JSON[column.type]:
                        raise UserError(f"{column.name}: {json.dumps(value)[:40]} is no {KINDS[column.type]}")
                fitting.add(kinds)
            values = [value if value is None or type(value) is str else str(value).lower() for value in values]
            fault = None if line.isascii() and "\\u" not in line else _encoding_fault(schema.columns, values)
            yield number, len(line), fault or values
        except (ValueError, RecursionError) as error:
            yield number, 0, first_line(error)


def _encoding_fault(names: Iterable[str], values: Sequence[str | None]) -> str | None:
    for name, value in zip(names, values, strict=True):
        if value and not value.isascii() and _SURROGATE.search(value):
            return f"{name}: {value.encode('utf-8', 'surrogatepass')[:40]!r} is not UTF-8"
    return None


def _refuse_constant(constant: str) -> None:
    raise UserError(f"{constant} is no number in JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise UserError("a key is there more than once")
    return row
