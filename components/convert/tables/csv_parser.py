"""Records of CSV files as columns of numbers and strings, read quickly and checked strictly.

    parser = CsvParser(schema=schema, names=header(cells, schema, ","))
    parser.columns(chunk)["fare"]                     # float64 [N], null where a value is missing
    for row, fault in parser.faults(chunk): ...       # 17, "tips: ..."

Arrow reads records fast but tells little of what is wrong with them. So when it fails, or a value is missing or not
finite, they are read once more one by one, to say where and what.
"""

import codecs
import dataclasses
import decimal
import functools
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from common.errors import UserError, unknown
from common.spellings import EITHER, marks
from components.convert.tables import arrow_columns, booleans, times
from components.convert.tables.quoting import Chunk
from components.convert.tables.schema import Column, Schema
from components.convert.tables.table_block import ARROW, STORED

_READ = {**ARROW, "time": pa.large_string()}
_NUMBERS = {
    "int": int,
    "float": lambda text: float(np.float32(float(text))),
    "time": lambda text: times.seconds(pa.array([text]))[0].as_py(),
}
_marks = functools.cache(marks)
_INT64, _FLOAT32_MAX = np.iinfo(np.int64), float(np.finfo(np.float32).max)
# All that Arrow takes for a number that is finite, but for a whole one in hexadecimal digits.
_WHOLE = re.compile(r"[ \t]*-?[0-9]+[ \t]*")
_NUMBER = re.compile(r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CsvParser:
    """Parses records of a file whose columns, in their order, are those features of the schema, or others."""

    schema: Schema
    names: Sequence[str]

    def columns(self, chunk: Chunk) -> pa.RecordBatch:
        """The wanted columns of all records; `pyarrow.ArrowInvalid` says that one is not what the schema says."""
        columns = self.schema.columns
        whole = [name for name, column in columns.items() if column.type == "int"]
        if whole and _hexadecimal(chunk.text):  # which Arrow takes for the start of a number
            texts = self._parse(chunk, dict.fromkeys(whole, pa.large_string()))
            if any(pc.any(pc.match_substring(text, "x", ignore_case=True)).as_py() for text in texts):
                raise pa.ArrowInvalid("a number is hexadecimal")
        found = self._parse(chunk, {name: _READ[column.type] for name, column in columns.items()})
        found = _normal(found, self.schema)
        if not all(_fits(found[name], column) for name, column in columns.items()):
            raise pa.ArrowInvalid("a value is missing or not finite")
        return found

    def faults(self, chunk: Chunk) -> Iterator[tuple[int, str]]:
        """The records that are not what the schema says, by their numbers in the chunk, each with what is wrong."""
        for row, cells in enumerate(chunk.rows()):
            if len(cells) != len(self.names):
                yield row, f"{len(cells)} values; the header has {len(self.names)}"
                continue
            for name, cell in zip(self.names, cells, strict=True):
                column = self.schema.columns.get(name)
                if column and (fault := _fault(cell, column, self.schema.missing)):
                    yield row, f"{name}: {fault}"
                    break

    def _parse(self, chunk: Chunk, types: Mapping[str, pa.DataType]) -> pa.RecordBatch:
        """Some of the columns."""
        quoted, missing = b'"' in chunk.text, list(self.schema.missing)
        # Arrow takes a byte order mark for none of the text that follows, wherever in a file that begins: then it gets one.
        text = codecs.BOM_UTF8 * chunk.text.startswith(codecs.BOM_UTF8) + chunk.text
        table = pyarrow.csv.read_csv(
            pa.BufferReader(text),
            pyarrow.csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=self.names),
            pyarrow.csv.ParseOptions(delimiter=chunk.delimiter, quote_char=quoted and '"', newlines_in_values=quoted),
            pyarrow.csv.ConvertOptions(
                include_columns=list(types), column_types=types, null_values=missing, strings_can_be_null=True
            ),
        )
        (batch,) = table.to_batches()
        return batch


def _hexadecimal(text: bytes) -> bool:
    """Whether there is a zero with an x behind it somewhere."""
    values = np.frombuffer(text, np.uint8)
    at = np.flatnonzero((values | 0x20) == ord("x"))
    return bool(
        (values[at - 1] == ord("0")).any()
    )  # the first byte's neighbour may be any: it is looked at closely then


def header(cells: Sequence[str], schema: Schema, delimiter: str) -> list[str]:
    """The feature that each column of a file is, by the file's first record; of one that nobody wants its position."""
    wanted = {column.header: column.name for column in schema.columns.values()}
    if wanted and not wanted.keys() & set(cells):
        raise UserError(
            f"its first line names no column of the schema ({', '.join(wanted)}); it needs a header, and the "
            f"schema a 'delimiter' if what stands between values is not {delimiter!r}"
        )
    for name in cells:
        if name in wanted and cells.count(name) > 1:
            raise UserError(f"column {name!r} stands in the header more than once")
        if name not in wanted and not schema.ignore_others:
            raise UserError(f"{unknown('column', name, wanted)}; add it to the schema, or 'other_columns: ignore'")
    for name in wanted:
        if name not in cells:
            raise UserError(f"has no column {name!r} (it has {', '.join(map(repr, cells))})")
    return [wanted.get(name, str(i)) for i, name in enumerate(cells)]


def _normal(columns: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Null also where a number equals one that stands for a missing value, -999.0 where that is -999; booleans respelled."""
    for name, column in schema.columns.items():
        if column.type == "time":
            found = times.seconds(columns[name])
            if times.strange(columns[name], found):
                raise pa.ArrowInvalid(f"{name}: not all are times")
            columns = columns.set_column(columns.schema.get_field_index(name), name, found)
        if column.type == "bool":
            place = columns.schema.get_field_index(name)
            columns = columns.set_column(place, name, booleans.respelled(columns[name]))
        elif column.type != "string" and (numbers := _marks(schema.missing, column.dtype)):
            found = arrow_columns.without(columns[name], STORED[column.type], numbers)
            columns = columns.set_column(columns.schema.get_field_index(name), name, found)
    return columns


def _fits(values: pa.Array, column: Column) -> bool:
    if values.null_count and column.required:
        return False
    if column.type == "bool" and booleans.strange(values):
        return False
    # False of NaN too, which compares with nothing; of missing values nothing is said.
    return column.type != "float" or pc.all(pc.less_equal(pc.abs(values), _FLOAT32_MAX)).as_py() is not False


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
        if number and column.required and number(text) in _marks(tuple(missing), column.dtype):
            return f"{text.strip()} is a missing value, and the schema has no default for it"
        return None
    kinds = {"float": "finite 32-bit number", "int": "64-bit whole number", "time": times.TOLD}
    kinds["bool"] = f"boolean, which is {EITHER}"
    return f"{text[:40]!r} is no {kinds[column.type]}"
