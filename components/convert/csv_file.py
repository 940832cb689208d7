"""CSV files as columns of numbers and strings, read quickly and checked strictly.

    table = read([pathlib.Path("trips.csv")], schema)
    table.columns["fare"]                     # float64 [N]
    raise table.error(row, "tips: ...")       # trips.csv: line 17: tips: ...

Arrow reads a file fast but tells little of what is wrong with it. So when it fails, or a value is missing or not
finite, the file is read once more line by line, to say where and what.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from components.convert import memory
from components.convert.schema import Column, Schema
from trainer.errors import UserError, unknown

_ARROW = {"float": pa.float64(), "int": pa.int64(), "string": pa.large_string()}
_INT64, _FLOAT32_MAX = np.iinfo(np.int64), float(np.finfo(np.float32).max)
_BLOCK_BYTES = 1 << 24  # read at once; no row may be longer
_BYTES_PER_BYTE = 8  # of memory for those of a file; seen were 4 with long values, 7 with short ones


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """The rows of all files, in order.

    Attributes:
      columns: By feature name: float64 or int64 [N], or an Arrow array of strings; the default where a value is missing.
      missing: Of each column that has a default, bool [N]: where a value is missing.
      files: Each file with its number of rows.
      positions: Of each row in all files together, int64 [N]; None if all are here.
    """

    columns: Mapping[str, np.ndarray | pa.LargeStringArray]
    missing: Mapping[str, np.ndarray]
    files: Sequence[tuple[pathlib.Path, int]]
    positions: np.ndarray | None = None

    def filtered(self, keep: np.ndarray) -> Table:
        """The rows for which `keep`, bool [N], is true."""
        return dataclasses.replace(
            self,
            columns={
                name: values.filter(pa.array(keep)) if isinstance(values, pa.Array) else values[keep]
                for name, values in self.columns.items()
            },
            missing={name: where[keep] for name, where in self.missing.items()},
            positions=np.flatnonzero(keep),
        )

    def error(self, row: int, message: str) -> UserError:
        """An error that names the file and the line of a row."""
        if self.positions is not None:
            row = int(self.positions[row])
        for path, rows in self.files:
            if row < rows:
                line = next(line for i, (line, _) in enumerate(_lines(path)) if i == row + 1)  # the first is the header
                return UserError(f"{path}: line {line}: {message}")
            row -= rows
        raise IndexError(row)


def read(paths: Sequence[pathlib.Path], schema: Schema) -> Table:
    """Reads files that all have the columns of the schema, in any order.

    Raises:
      UserError: If a file is no such table or a value is not what the schema says; it names file and line.
    """
    for path in paths:
        if paths.count(path) > 1:
            raise UserError(f"{path}: is given more than once")
    memory.require(_BYTES_PER_BYTE * sum(map(_size, paths)), f"{paths[0]}{' and the others' * (len(paths) > 1)}")
    tables = [_read(path, schema) for path in paths]
    columns, missing = {}, {}
    for column in schema.columns.values():
        parts = [table[column.header] for table in tables]
        array = pa.chunked_array([chunk for part in parts for chunk in part.chunks], _ARROW[column.type])
        array = array.combine_chunks()
        if column.default is not None:
            missing[column.name] = array.is_null().to_numpy(zero_copy_only=False)
            array = array.fill_null(column.default)
        columns[column.name] = array if column.type == "string" else array.to_numpy()
    return Table(columns=columns, missing=missing, files=[(p, t.num_rows) for p, t in zip(paths, tables, strict=True)])


def _size(path: pathlib.Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def _read(path: pathlib.Path, schema: Schema) -> pa.Table:
    positions = _positions(path, schema)
    try:
        table = pyarrow.csv.read_csv(
            path,
            # By one thread: with quoted line ends another gains nothing.
            pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
            pyarrow.csv.ParseOptions(newlines_in_values=True),
            pyarrow.csv.ConvertOptions(
                include_columns=[column.header for column in schema.columns.values()],
                column_types={column.header: _ARROW[column.type] for column in schema.columns.values()},
                null_values=list(schema.missing),
                strings_can_be_null=True,
            ),
        )
    except (pa.ArrowException, OSError) as error:
        _explain(path, schema, positions)
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None
    if not table.num_rows:
        raise UserError(f"{path}: has a header and no rows")
    fits = all(_fits(table[column.header], column) for column in schema.columns.values())
    if not fits or _odd_quotes(path):
        _explain(path, schema, positions)
    if not fits:
        raise UserError(f"{path}: a value is missing or not finite")
    return table


def _fits(values: pa.ChunkedArray, column: Column) -> bool:
    if values.null_count and column.default is None:
        return False
    # False of NaN too, which compares with nothing; of missing values nothing is said.
    return column.type != "float" or pc.all(pc.less_equal(pc.abs(values), _FLOAT32_MAX)).as_py() is not False


def _odd_quotes(path: pathlib.Path) -> bool:
    """Whether a quote may be open at the end: Arrow takes all from there for one value, and says nothing."""
    with open(path, "rb") as file:
        return sum(block.count(b'"') for block in iter(lambda: file.read(_BLOCK_BYTES), b"")) % 2 == 1


def _positions(path: pathlib.Path, schema: Schema) -> dict[str, int]:
    """Where each column of the schema stands in the file, by the file's header."""
    _, header = next(_lines(path), (0, None))
    if header is None:
        raise UserError(f"{path}: empty; it needs a header and rows")
    wanted = {column.header: column.name for column in schema.columns.values()}
    for name in header:
        if not name.isprintable():
            raise UserError(
                f"{path}: {name[:40]!a} is no column's name in UTF-8; is it a CSV file, and not compressed?"
            )
        if name in wanted and header.count(name) > 1:
            raise UserError(f"{path}: column {name!r} stands in the header more than once")
        if name not in wanted and not schema.ignore_others:
            raise UserError(
                f"{path}: {unknown('column', name, wanted)}; add it to the schema, or 'other_columns: ignore'"
            )
    for name in wanted:
        if name not in header:
            raise UserError(f"{path}: has no column {name!r} (it has {', '.join(header)})")
    return {wanted[name]: i for i, name in enumerate(header) if name in wanted}


def _explain(path: pathlib.Path, schema: Schema, positions: Mapping[str, int]) -> None:
    """Raises for the first line that is not what the schema says."""
    width = None
    for line, cells in _lines(path):
        if width is None:
            width = len(cells)
            continue
        if len(cells) != width:
            raise UserError(f"{path}: line {line}: {len(cells)} values; the header has {width}")
        for name, i in positions.items():
            if fault := _fault(cells[i], schema.columns[name], schema.missing):
                raise UserError(f"{path}: line {line}: {name}: {fault}")


def _fault(text: str, column: Column, missing: Sequence[str]) -> str | None:
    if text in missing:
        return "is missing, and the schema has no default for it" if column.default is None else None
    if any("\udc80" <= character <= "\udcff" for character in text):
        return f"{text.encode('utf-8', 'surrogateescape')[:40]!r} is not UTF-8"
    with contextlib.suppress(ValueError):
        if (
            column.type == "string"
            or (column.type == "float" and abs(float(text)) <= _FLOAT32_MAX)
            or (column.type == "int" and _INT64.min <= int(text) <= _INT64.max)
        ):
            return None
    return f"{text[:40]!r} is no {'finite 32-bit number' if column.type == 'float' else '64-bit whole number'}"


def _lines(path: pathlib.Path) -> Iterator[tuple[int, list[str]]]:
    """Of each row, the header first, the line that it starts on and its cells; blank lines are no rows.

    Bytes that are not UTF-8 become surrogates.
    """
    csv.field_size_limit(_BLOCK_BYTES)
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            reader, line = csv.reader(file, strict=True), 1
            try:
                for cells in reader:
                    if cells:
                        yield line, cells
                    line = reader.line_num + 1
            except csv.Error as error:
                raise UserError(f"{path}: line {line}: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
