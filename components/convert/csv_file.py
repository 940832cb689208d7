"""CSV files as columns of numbers and strings, read quickly and checked strictly.

    for block in read([pathlib.Path("trips.csv")], schema):
        block.columns["fare"]                     # float64 [N]
        raise block.error(row, "tips: ...")       # trips.csv: line 17: tips: ...

Arrow reads a file fast but tells little of what is wrong with it. So when it fails, or a value is missing or not
finite, the file is read once more line by line, to say where and what.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import math
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from components.convert.progress import track
from components.convert.schema import Column, Schema
from trainer.errors import UserError, unknown

_ARROW = {"float": pa.float64(), "int": pa.int64(), "string": pa.large_string()}
_INT64, _FLOAT32_MAX = np.iinfo(np.int64), float(np.finfo(np.float32).max)
_LEAST_BLOCK_BYTES, _MOST_BLOCK_BYTES = 1 << 20, 1 << 24  # read at once; no row may be longer
_AHEAD = 64  # blocks' worth of memory: Arrow reads up to 32 in advance


@dataclasses.dataclass(frozen=True, kw_only=True)
class Block:
    """Some rows of a file, in order.

    Attributes:
      columns: By feature name: float64 or int64 [N], or an Arrow array of strings; the default where a value is missing.
      missing: Of each column that has a default, bool [N]: where a value is missing.
      path: Of the file.
      positions: Of each row among those of the file, int64 [N].
    """

    columns: Mapping[str, np.ndarray | pa.LargeStringArray]
    missing: Mapping[str, np.ndarray]
    path: pathlib.Path
    positions: np.ndarray

    def filtered(self, keep: np.ndarray) -> Block:
        """The rows for which `keep`, bool [N], is true."""
        return dataclasses.replace(
            self,
            columns={
                name: values.filter(pa.array(keep)) if isinstance(values, pa.Array) else values[keep]
                for name, values in self.columns.items()
            },
            missing={name: where[keep] for name, where in self.missing.items()},
            positions=self.positions[keep],
        )

    def error(self, row: int, message: str) -> UserError:
        """An error that names the file and the line of a row."""
        header_and_rows = enumerate(_lines(self.path), -1)
        line = next(line for i, (line, _) in header_and_rows if i == self.positions[row])
        return UserError(f"{self.path}: line {line}: {message}")


def read(paths: Sequence[pathlib.Path], schema: Schema, *, working_bytes: float = math.inf) -> Iterator[Block]:
    """Reads files that all have the columns of the schema, in any order.

    Args:
      paths: Of the files.
      schema: Theirs.
      working_bytes: Of memory, about.

    Raises:
      UserError: If a file is no such table or a value is not what the schema says; it names file and line.
    """
    for path in paths:
        if paths.count(path) > 1:
            raise UserError(f"{path}: is given more than once")
    block_bytes = int(min(_MOST_BLOCK_BYTES, max(_LEAST_BLOCK_BYTES, working_bytes / _AHEAD)))
    names = f"{paths[0].name}{f' and {len(paths) - 1} more' * (len(paths) > 1)}"
    with track(f"reading {names}", sum(map(_size, paths)), "bytes") as advance:
        for path in paths:
            yield from _read(path, schema, block_bytes, advance)


def _size(path: pathlib.Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def _read(path: pathlib.Path, schema: Schema, block_bytes: int, advance: Callable[[int], object]) -> Iterator[Block]:
    positions, rows = _positions(path, schema), 0
    try:
        with pa.OSFile(os.fspath(path)) as file:
            at = 0
            for batch in _batches(file, schema, block_bytes):
                if not all(_fits(batch[column.header], column) for column in schema.columns.values()):
                    _explain(path, schema, positions)
                    raise UserError(f"{path}: a value is missing or not finite")
                yield _block(batch, schema, path, rows)
                rows += batch.num_rows
                advance(-at + (at := file.tell()))
    except pa.ArrowMemoryError:
        raise  # which is no fault of the file
    except (pa.ArrowException, OSError) as error:
        _explain(path, schema, positions)
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None
    if not rows:
        raise UserError(f"{path}: has a header and no rows")
    if _odd_quotes(path):
        _explain(path, schema, positions)


def _batches(file: pa.NativeFile, schema: Schema, block_bytes: int) -> pyarrow.csv.CSVStreamingReader:
    return pyarrow.csv.open_csv(
        file,
        # By one thread: with quoted line ends another gains nothing.
        pyarrow.csv.ReadOptions(use_threads=False, block_size=block_bytes),
        pyarrow.csv.ParseOptions(newlines_in_values=True),
        pyarrow.csv.ConvertOptions(
            include_columns=[column.header for column in schema.columns.values()],
            column_types={column.header: _ARROW[column.type] for column in schema.columns.values()},
            null_values=list(schema.missing),
            strings_can_be_null=True,
        ),
    )


def _block(batch: pa.RecordBatch, schema: Schema, path: pathlib.Path, first: int) -> Block:
    columns, missing = {}, {}
    for column in schema.columns.values():
        array = batch[column.header]
        if column.default is not None:
            missing[column.name] = array.is_null().to_numpy(zero_copy_only=False)
            array = array.fill_null(column.default)
        columns[column.name] = array if column.type == "string" else array.to_numpy()
    return Block(columns=columns, missing=missing, path=path, positions=np.arange(first, first + batch.num_rows))


def _fits(values: pa.Array, column: Column) -> bool:
    if values.null_count and column.default is None:
        return False
    # False of NaN too, which compares with nothing; of missing values nothing is said.
    return column.type != "float" or pc.all(pc.less_equal(pc.abs(values), _FLOAT32_MAX)).as_py() is not False


def _odd_quotes(path: pathlib.Path) -> bool:
    """Whether a quote may be open at the end: Arrow takes all from there for one value, and says nothing."""
    with open(path, "rb") as file:
        return sum(block.count(b'"') for block in iter(lambda: file.read(_LEAST_BLOCK_BYTES), b"")) % 2 == 1


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
    csv.field_size_limit(_MOST_BLOCK_BYTES)
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            reader, line = csv.reader(_bounded(file), strict=True), 1
            try:
                for cells in reader:
                    if cells:
                        yield line, cells
                    line = reader.line_num + 1
            except csv.Error as error:
                raise UserError(f"{path}: line {line}: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def _bounded(file: IO[str]) -> Iterator[str]:
    """The lines of a file, none of which may fill the memory."""
    while line := file.readline(_MOST_BLOCK_BYTES):
        if len(line) == _MOST_BLOCK_BYTES:
            raise csv.Error(f"no line end in {_MOST_BLOCK_BYTES:,} characters; is it a CSV file?")
        yield line
