"""CSV files as columns of numbers and strings, read quickly and checked strictly.

    for block in read([pathlib.Path("trips.csv")], schema):
        block.columns["fare"]                     # float64 [N], null where a value is missing
        raise block.error(row, "tips: ...")       # trips.csv: line 17: tips: ...

Arrow reads records fast but tells little of what is wrong with them. So when it fails, or a value is missing or not
finite, they are read once more one by one, to say where and what.
"""

import decimal
import functools
import itertools
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from components.convert.tables import booleans, times
from components.convert.tables.quoting import Chunk, chunks
from components.convert.tables.schema import Column, Schema
from components.convert.tables.table_block import ARROW, TableBlock
from components.convert.writing.progress import track
from trainer.base.errors import UserError, readable, unknown
from trainer.base.spellings import EITHER, marks

_STORED = {"float": pa.float32(), "int": pa.int64(), "time": pa.int64()}
_READ = {**ARROW, "time": pa.large_string()}
_NUMBERS = {
    "int": int,
    "float": lambda text: float(np.float32(float(text))),
    "time": lambda text: times.seconds(pa.array([text]))[0].as_py(),
}
_GZIP = b"\x1f\x8b"
_INT64, _FLOAT32_MAX = np.iinfo(np.int64), float(np.finfo(np.float32).max)
# All that Arrow takes for a number that is finite, but for a whole one in hexadecimal digits.
_WHOLE = re.compile(r"[ \t]*-?[0-9]+[ \t]*")
_NUMBER = re.compile(r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*")


def read(paths: Sequence[pathlib.Path], schema: Schema) -> Iterator[TableBlock]:
    """Reads files of the schema's columns, in any order, with one row at least; a `UserError` names file and line."""
    more, rows = f" and {len(paths) - 1} more" * (len(paths) > 1), 0
    with track(f"reading {paths[0].name}{more}", sum(path.stat().st_size for path in paths), "bytes") as advance:
        for path in paths:
            with readable(path):
                for block in _read(path, schema, advance):
                    rows += len(block.positions)
                    yield block
    if not rows:
        raise UserError(f"{paths[0]}{more}: a header and no rows")


def _read(path: pathlib.Path, schema: Schema, advance: Callable[[int], object]) -> Iterator[TableBlock]:
    header, at = None, 0
    delimiter = schema.delimiter or ("\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ",")
    with open(path, "rb") as raw:
        packed = raw.read(len(_GZIP)) == _GZIP
        raw.seek(0)
        for chunk in chunks(path, pa.CompressedInputStream(raw, "gzip") if packed else raw, delimiter):
            if header is None:
                _, header = next(chunk.rows(), (0, None))
                if header is None:
                    continue
                names, chunk = _names(path, header, schema, delimiter), chunk.without_first()
            if chunk.text.strip(b"\r\n"):
                yield _block(path, chunk, schema, names)
            advance(-at + (at := raw.tell()))
    if header is None:
        raise UserError(f"{path}: empty; it needs a header")


def _block(path: pathlib.Path, chunk: Chunk, schema: Schema, names: Sequence[str]) -> TableBlock:
    whole = [name for name, column in schema.columns.items() if column.type == "int"]
    parse = functools.partial(_parse, chunk, names, schema.missing)
    try:
        if whole and (b"0x" in chunk.text or b"0X" in chunk.text):  # which Arrow takes for the start of a number
            texts = parse(dict.fromkeys(whole, pa.large_string()))
            if any(pc.any(pc.match_substring(text, "x", ignore_case=True)).as_py() for text in texts):
                _explain(path, chunk, schema, names)
        columns = parse({name: _READ[column.type] for name, column in schema.columns.items()})
        columns = _normal(columns, schema)
    except pa.ArrowMemoryError:
        raise  # which is no fault of the file
    except pa.ArrowException as error:
        _explain(path, chunk, schema, names)
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None
    if not all(_fits(columns[name], column) for name, column in schema.columns.items()):
        _explain(path, chunk, schema, names)
        raise UserError(f"{path}: a value is missing or not finite")
    return TableBlock(
        columns=columns,
        path=path,
        positions=np.arange(columns.num_rows),
        locate=lambda position: f"line {next(itertools.islice(chunk.rows(), position, None))[0]}",
    )


def _parse(
    chunk: Chunk, names: Sequence[str], missing: Sequence[str], types: Mapping[str, pa.DataType]
) -> pa.RecordBatch:
    """Some of the columns of a chunk."""
    quoted = b'"' in chunk.text
    table = pyarrow.csv.read_csv(
        pa.BufferReader(chunk.text),
        pyarrow.csv.ReadOptions(use_threads=False, block_size=len(chunk.text) + 1, column_names=names),
        pyarrow.csv.ParseOptions(delimiter=chunk.delimiter, quote_char=quoted and '"', newlines_in_values=quoted),
        pyarrow.csv.ConvertOptions(
            include_columns=list(types), column_types=types, null_values=list(missing), strings_can_be_null=True
        ),
    )
    (batch,) = table.to_batches()
    return batch


def _normal(columns: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Null also where a number equals one that stands for a missing value, -999.0 where that is -999; booleans respelled.

    Raises:
      pyarrow.ArrowInvalid: If a time is none.
    """
    for name, column in schema.columns.items():
        if column.type == "time":
            found = times.seconds(columns[name])
            if times.strange(columns[name], found):
                raise pa.ArrowInvalid(f"{name}: not all are times")
            columns = columns.set_column(columns.schema.get_field_index(name), name, found)
        if column.type == "bool":
            place = columns.schema.get_field_index(name)
            columns = columns.set_column(place, name, booleans.respelled(columns[name]))
        elif column.type != "string" and (numbers := marks(schema.missing, column.dtype)):
            stored = columns[name].cast(_STORED[column.type], safe=False)
            marked = functools.reduce(pc.or_, (pc.equal(stored, pa.scalar(mark, stored.type)) for mark in numbers))
            found = pc.if_else(marked, pa.scalar(None, columns[name].type), columns[name])
            columns = columns.set_column(columns.schema.get_field_index(name), name, found)
    return columns


def _fits(values: pa.Array, column: Column) -> bool:
    if values.null_count and column.required:
        return False
    if column.type == "bool" and booleans.strange(values):
        return False
    # False of NaN too, which compares with nothing; of missing values nothing is said.
    return column.type != "float" or pc.all(pc.less_equal(pc.abs(values), _FLOAT32_MAX)).as_py() is not False


def _names(path: pathlib.Path, header: Sequence[str], schema: Schema, delimiter: str) -> list[str]:
    """The feature that each column of the file is, by the file's header; of one that nobody wants its position."""
    wanted = {column.header: column.name for column in schema.columns.values()}
    if not wanted.keys() & set(header):
        raise UserError(
            f"{path}: its first line names no column of the schema ({', '.join(wanted)}); it needs a header, and the "
            f"schema a 'delimiter' if what stands between values is not {delimiter!r}"
        )
    for name in header:
        if name in wanted and header.count(name) > 1:
            raise UserError(f"{path}: column {name!r} stands in the header more than once")
        if name not in wanted and not schema.ignore_others:
            what = unknown("column", name, wanted)
            raise UserError(f"{path}: {what}; add it to the schema, or 'other_columns: ignore'")
    for name in wanted:
        if name not in header:
            raise UserError(f"{path}: has no column {name!r} (it has {', '.join(map(repr, header))})")
    return [wanted.get(name, str(i)) for i, name in enumerate(header)]


def _explain(path: pathlib.Path, chunk: Chunk, schema: Schema, names: Sequence[str]) -> None:
    """Raises for the first line that is not what the schema says."""
    for line, cells in chunk.rows():
        if len(cells) != len(names):
            raise UserError(f"{path}: line {line}: {len(cells)} values; the header has {len(names)}")
        for name, cell in zip(names, cells, strict=True):
            if name in schema.columns and (fault := _fault(cell, schema.columns[name], schema.missing)):
                raise UserError(f"{path}: line {line}: {name}: {fault}")


def _fault(text: str, column: Column, missing: Sequence[str]) -> str | None:
    if text in missing:
        return "is missing, and the schema has no default for it" if column.required else None
    if any("\udc80" <= character <= "\udcff" for character in text):
        return f"{text.encode('utf-8', 'surrogateescape')[:40]!r} is not UTF-8"
    fits = {
        "string": lambda: True,
        "bool": lambda: not booleans.strange(booleans.respelled(pa.array([text]))),
        "time": lambda: _NUMBERS["time"](text) is not None,
        "float": lambda: _NUMBER.fullmatch(text) and abs(float(text)) <= _FLOAT32_MAX,
        "int": lambda: _WHOLE.fullmatch(text) and _INT64.min <= decimal.Decimal(text.strip()) <= _INT64.max,
    }
    if fits[column.type]():
        number = _NUMBERS.get(column.type)
        if number and column.required and number(text) in marks(missing, column.dtype):
            return f"{text.strip()} is a missing value, and the schema has no default for it"
        return None
    kinds = {"float": "finite 32-bit number", "int": "64-bit whole number", "time": times.TOLD}
    kinds["bool"] = f"boolean, which is {EITHER}"
    return f"{text[:40]!r} is no {kinds[column.type]}"
