"""Rows of text files: CSV, read strictly as in RFC 4180, and lines of JSON objects.

    for line, values in read_csv("trips.csv", ",", 3, {"fare": 2}): ...
    for line, values in read_json("trips.jsonl", schema): ...

Each row has the number of its line. In place of the values, a wrong row has a text that says what
is wrong.
"""

from __future__ import annotations

import codecs
import collections
import csv
import glob
import json
import mmap
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from common.errors import UserError, first_line, unknown
from common.spellings import KINDS
from components.convert.expressions import literal
from components.convert.schema import TableSchema

MAX_BYTES = 1 << 24  # Most bytes of a text; also most characters of a line, or of a value.
# Types of the values that JSON may have in a column, by the column's type.
_JSON = {"float": (float, int), "int": (int,), "bool": (bool,), "string": (str,), "time": (str,)}
# Number of the line, and the values, None for a missing one; or what is wrong in place of them.
Row = tuple[int, "Sequence[str | None] | str"]


def refuse_others(names: Set[str], wanted: Set[str], schema: TableSchema) -> None:
    """Checks that there are no further columns, unless the schema ignores them.

    Args:
      names: Names of the columns.
      wanted: Names that the schema has.
      schema: Schema of the table.

    Raises:
      UserError: If there are other names, and the schema does not ignore them.
    """
    if schema.other_columns != "ignore" and (others := sorted(names - wanted)):
        raise UserError(
            f"{unknown('column', others[0], wanted)}; add it to the schema, or 'other_columns: "
            "ignore'"
        )


def check_names(names: Sequence[str], schema: TableSchema) -> None:
    """Checks the names of a table's columns.

    Args:
      names: Names of the columns.
      schema: Schema of the table.

    Raises:
      UserError: If a column of the schema is missing or there more than once, or there are further
        columns, and the schema does not ignore them.
    """
    headers = [column.header for column in schema.columns.values()]
    refuse_others({*names}, {*headers}, schema)
    counts = collections.Counter(names)
    for header in headers:
        if counts[header] != 1:
            fault = (
                f"column {header!r} is there more than once"
                if counts[header]
                else f"has no column {header!r}"
            )
            raise UserError(f"{fault} (it has {', '.join(map(repr, names))})")


def check_quotes(path: str, delimiter: str) -> bool:
    """Checks the quotes of a CSV file, and returns whether it has any.

    Args:
      path: Path of the file on this machine; it is not empty.
      delimiter: Character between values.

    Raises:
      UserError: If there are quotes where RFC 4180 has none, a quoted value without an end, or zero
        bytes. Readers of CSV differ in what they make of these.
    """
    # A value in quotes is a run of such strings, each with the quotes at its ends, since a quote
    # within a value is written twice. What is read once is never tried again, so that no file
    # takes long.
    quoted, inside = rb'(?:"[^"]*+")++', b"[^%b\r\n]" % re.escape(delimiter).encode()
    value = rb"(?<!%b)%b(?!%b)" % (inside, quoted, inside)
    first = rb"(?:%b(?:%b(?!%b))?+)?+" % (codecs.BOM_UTF8, quoted, inside)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if (zero := content.find(b"\0")) >= 0:
            raise UserError(f"line {_line_of(content, zero)}: a zero byte; is it text in UTF-8?")
        right = re.match(rb'%b(?:[^"]++|%b)*+' % (first, value), content)
        if right and right.end() < len(content):
            raise UserError(
                f"line {_line_of(content, right.end())}: a quote in a value that does not start "
                "with one, text behind a closing quote, or a value that a quote opens and that has "
                "no end; write a quote within a value twice, and the value in quotes; values have "
                f"to stand between {delimiter!r}"
            )
        return content.find(b'"') >= 0


def parquet_relation(paths: Iterable[str]) -> str:
    """Returns SQL for the values of Parquet files; `file_row_number` numbers the rows of each.

    Folders in the paths may give columns of texts, by names such as `year=2024`.

    Args:
      paths: Paths of the files on this machine.
    """
    return (
        f"read_parquet({path_list(paths)}, hive_partitioning=true, hive_types_autocast=false, "
        "binary_as_string=true, union_by_name=true)"
    )


def path_list(paths: Iterable[str]) -> str:
    """Returns paths of this machine as SQL for functions of DuckDB that read files."""
    return f"[{', '.join(literal(glob.escape(os.path.abspath(path))) for path in paths)}]"


def _line_of(content: mmap.mmap, end: int) -> int:
    """Returns the number of the line, from 1, in which a byte position is."""
    return 1 + sum(1 for _ in re.compile(rb"\r\n?|\n").finditer(content, 0, end))


def csv_relation(
    path: str,
    names: Sequence[str],
    skipped: int,
    delimiter: str,
    *,
    null: str = "",
    is_parallel: bool = False,
) -> str:
    """Returns SQL for the values of a CSV file, all as texts. DuckDB guesses nothing.

    Args:
      path: Path of the file on this machine.
      names: Names of the columns, all different.
      skipped: Number of lines of the header.
      delimiter: Character between values.
      null: Text that becomes null.
      is_parallel: Whether several threads may read the file. They would not notice line ends
        in quotes.
    """
    types = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
    return (
        f"read_csv({path_list([path])}, columns={{{types}}}, "
        f"skip={skipped}, delim='{delimiter}', quote='\"', escape='\"', nullstr='{null}', "
        f"auto_detect=false, header=false, compression='none', parallel={is_parallel})"
    )


def _lines(path: str) -> Iterator[str]:
    """Yields the lines of a text file, with their ends; bytes that are not UTF-8 become surrogates.

    A byte order mark at the start is left out.

    Raises:
      UserError: If a line has `MAX_BYTES` characters or more.
    """
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_BYTES), ""), 1):
            if len(line) == MAX_BYTES:
                raise UserError(
                    f"line {number}: no line end in {MAX_BYTES:,} characters; is it a text file?"
                )
            yield line.removeprefix("\ufeff") if number == 1 else line


def read_records(path: str, delimiter: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yields the numbers of the first and the last line, and the values, of a CSV file's records.

    The header is a record too. Lines count from 1. Blank lines are passed over.

    Args:
      path: Path of the file on this machine.
      delimiter: Character between values.

    Raises:
      UserError: If the file is no CSV, or a line or value has too many characters (`MAX_BYTES`).
    """
    csv.field_size_limit(MAX_BYTES)
    reader = csv.reader(_lines(path), delimiter=delimiter, strict=True)
    first = 1
    try:
        for cells in reader:
            if cells:  # A blank line has none.
                yield first, reader.line_num, cells
            first = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"line {first}: is no CSV: {error}; values with quotes in them have to stand in quotes"
        ) from None


def read_header(path: str, delimiter: str) -> tuple[int, list[str]]:
    """Returns the number, from 1, of the last line of a CSV file's header, and the names in it.

    Args:
      path: Path of the file on this machine.
      delimiter: Character between values.

    Raises:
      UserError: If the file has no lines that are not blank, is no CSV, or a line or value has too
        many characters (`MAX_BYTES`).
    """
    for _, end, names in read_records(path, delimiter):
        return end, names
    raise UserError("empty; it needs a header")


def read_csv(
    path: str, delimiter: str, num_columns: int, columns: Mapping[str, int]
) -> Iterator[Row]:
    """Yields the rows of a CSV file with a header.

    Args:
      path: Path of the file on this machine.
      delimiter: Character between values.
      num_columns: Number of columns in the header; a row with another number is wrong.
      columns: Positions of the wanted columns, by name.

    Yields:
      The number of each row's first line, and its values in the order of `columns`, or, if the row
      is wrong, a text that says why.

    Raises:
      UserError: If the file is no CSV, or a line or value has too many characters (`MAX_BYTES`).
    """
    records = read_records(path, delimiter)
    next(records)
    for number, _, cells in records:
        if len(cells) == num_columns:
            values = [cells[i] for i in columns.values()]
            yield number, _encoding_fault(columns, values) or values
        else:
            yield number, f"{len(cells)} values; the header has {num_columns}"


def read_json(path: str, schema: TableSchema) -> Iterator[Row]:
    """Yields the rows of a file that has a JSON object on each line; blank lines are passed over.

    Args:
      path: Path of the file on this machine.
      schema: Schema of the table.

    Yields:
      The number of each row's line, and the values of the schema's columns as texts, None for a
      missing one, or, if the row is wrong, a text that says why.

    Raises:
      UserError: If a line has too many characters (`MAX_BYTES`).
    """
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)
    columns = [(name, column.header, column.type) for name, column in schema.columns.items()]
    headers = {header for _, header, _ in columns}
    for number, line in enumerate(_lines(path), 1):
        if line := line.rstrip("\r\n"):
            try:
                row = decoder.decode(line)
                if not isinstance(row, dict):
                    raise UserError(f"{line[:40]!r} is no JSON object, which has a line of its own")
                refuse_others(row.keys(), headers, schema)
                values = [_json_text(name, row.get(header), kind) for name, header, kind in columns]
                yield number, _encoding_fault(schema.columns, values) or values
            except (ValueError, RecursionError) as error:
                yield number, first_line(error)


def _json_text(name: str, value: Any, type_: str) -> str | None:
    if value is None:
        return None
    if type(value) not in _JSON[type_]:
        raise UserError(f"{name}: {json.dumps(value)[:40]} is no {KINDS[type_]}")
    return value if isinstance(value, str) else str(value).lower()


def _encoding_fault(names: Iterable[str], values: Sequence[str | None]) -> str | None:
    """Returns what is wrong if a value is not UTF-8, by its surrogates; None if all are."""
    if "".join(filter(None, values)).isascii():
        return None
    for name, value in zip(names, values, strict=True):
        try:
            (value or "").encode()
        except UnicodeEncodeError as error:
            return f"{name}: {error.object.encode('utf-8', 'surrogatepass')[:40]!r} is not UTF-8"
    return None


def _refuse_constant(constant: str) -> None:
    raise UserError(f"{constant} is no number in JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise UserError("a key is there more than once")
    return row
