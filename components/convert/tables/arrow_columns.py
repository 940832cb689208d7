"""Columns of a source that has types, such as Parquet, as a schema has them: converted without loss, or refused.

    columns(batch, schema, error)      # RecordBatch by feature name, of the types ARROW

Arrow's batches without rows are refused as well if their types can never be what the schema says.
"""

import functools
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from common.errors import UserError, unknown
from common.spellings import EITHER, marks
from components.convert.tables import booleans, times
from components.convert.tables.schema import Column, Schema
from components.convert.tables.table_block import ARROW, STORED

# Given a row and what is wrong with it.
_Error = Callable[[int, str], UserError]

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_MOST_BYTES = 1 << 24
_NUMBERS = (pt.is_integer, pt.is_floating, pt.is_decimal)
_TEXTS = (
    *(pt.is_string, pt.is_large_string, pt.is_string_view),
    *(pt.is_binary, pt.is_large_binary, pt.is_binary_view, pt.is_fixed_size_binary),
)
_TAKES = {
    "float": (_NUMBERS, "numbers"),
    "int": ((*_NUMBERS, pt.is_time), "whole numbers, and times of day as seconds since midnight"),
    "string": (_TEXTS, "texts"),
    "bool": ((pt.is_boolean, pt.is_integer, *_TEXTS), "booleans, 0 and 1, and texts that say so"),
    "time": ((pt.is_timestamp, pt.is_date, *_TEXTS), "timestamps, dates, and texts as in ISO 8601"),
}
LIKELIEST = ("int", "float", "time", "bool", "string")


def columns(batch: pa.RecordBatch, schema: Schema, error: _Error) -> pa.RecordBatch:
    """The columns of some rows; null is where a value is missing, if the schema allows that.

    Raises:
      UserError: If a column is not there, has a type that the schema's does not take, or nobody wants it; or, of `error`, if
        a value is missing or cannot be stored.
    """
    wanted = {column.header for column in schema.columns.values()}
    if not schema.ignore_others and (others := sorted({*batch.schema.names} - wanted)):
        raise UserError(f"{unknown('column', others[0], wanted)}; add it to the schema, or 'other_columns: ignore'")
    found = {}
    for name, column in schema.columns.items():
        array = _column(batch, column.header)
        accepted, takes = _TAKES[column.type]
        if not pt.is_null(array.type) and not any(is_such(array.type) for is_such in accepted):
            raise UserError(f"column {column.header!r} is {array.type}, and type {column.type} takes {takes}")

        def refused(row: int, what: str, name: str = name) -> UserError:
            return error(row, f"{name}: {what}")

        values = found[name] = _values(array, column, schema.missing, refused)
        if column.required and values.null_count:
            raise refused(values.is_null().index(True).as_py(), "is missing, and the schema has no default for it")
    return pa.RecordBatch.from_pydict(found)


def headers(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """The columns of a source of these types, each with the types that may fit it, the likeliest first."""
    return {field.name: _fitting(field.type) for field in schema}


def _fitting(given: pa.DataType) -> tuple[str, ...]:
    given = given.value_type if pt.is_dictionary(given) else given
    broken = pt.is_floating(given) or (pt.is_decimal(given) and given.scale > 0)
    fitting = (t for t in LIKELIEST if any(is_such(given) for is_such in _TAKES[t][0]))
    return tuple(t for t in fitting if not (broken and t == "int"))


def _column(batch: pa.RecordBatch, header: str) -> pa.Array:
    """The column of that name."""
    names = batch.schema.names
    if names.count(header) != 1:
        there = f"column {header!r} is there more than once" if header in names else f"has no column {header!r}"
        raise UserError(f"{there} (it has {', '.join(map(repr, names))})")
    array = batch.column(header)
    array = array.storage if isinstance(array, pa.ExtensionArray) else array
    return array.dictionary_decode() if pt.is_dictionary(array.type) else array


def _values(array: pa.Array, column: Column, missing: tuple[str, ...], error: _Error) -> pa.Array:
    """The values of a column whose type is taken, null where one is missing."""
    if of_texts := any(is_text(array.type) for is_text in _TEXTS):
        # Files may call text what is none: Arrow looks only if they do not.
        array = _cast(array.cast(pa.large_binary()), pa.large_string(), "is not UTF-8", error)
        if (long := pc.greater(pc.binary_length(array), _MOST_BYTES).index(True).as_py()) >= 0:
            raise error(long, f"has {len(array[long].as_buffer()):,} bytes; a text has at most 16 MiB")
    elif column.type == "bool":
        array = array.cast(pa.large_string())  # of 0 and 1, too
    if pt.is_large_string(array.type):
        array = without(array, array.type, marks(missing, "string"))
    if column.type == "bool":
        array = booleans.respelled(array)
        if strange := booleans.strange(array):
            raise error(strange[0], f"{str(array[strange[0]])!r} is no boolean, which is {EITHER}")
    elif column.type == "time" and not pt.is_null(array.type):
        given, array = array, times.seconds(array)
        if strange := of_texts and times.strange(given, array):
            raise error(strange[0], f"{str(given[strange[0]])[:40]!r} is no {times.TOLD}")
    elif pt.is_time(array.type):
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[array.type.unit]
        array = pc.divide(array.cast(pa.int32() if array.type.bit_width == 32 else pa.int64()), per_second)
    elif pt.is_floating(array.type):
        array = array.cast(pa.float64())
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, pa.float64()), array)
    elif pt.is_decimal(array.type) and array.type.bit_width < 128:
        array = array.cast(pa.decimal128(38, array.type.scale))  # whole ones of these Arrow takes for others
    if column.type == "int":
        array = _cast(array, pa.int64(), "is no 64-bit whole number", error)
    elif column.type == "float":
        if pt.is_decimal(array.type):
            array = array.cast(pa.large_string())  # of a decimal Arrow itself takes a number near it, not the nearest
        array = array.cast(pa.float64(), safe=False)  # of large whole numbers the nearest one
        if (large := pc.greater(pc.abs(array), _FLOAT32_MAX).index(True).as_py()) >= 0:
            raise error(large, f"{array[large]} is no finite 32-bit number")
    if column.type in STORED:
        array = without(array, STORED[column.type], marks(missing, column.dtype))
    return array.cast(ARROW[column.type])


def _cast(array: pa.Array, wanted: pa.DataType, fault: str, error: _Error) -> pa.Array:
    try:
        return array.cast(wanted)
    except pa.ArrowInvalid:
        for row in range(len(array)):
            try:
                array.slice(row, 1).cast(wanted)
            except pa.ArrowInvalid:
                raise error(row, f"{str(array[row])[:40]} {fault}") from None
        raise


def without(array: pa.Array, stored: pa.DataType, marked: Iterable[str | float]) -> pa.Array:
    """Null also where what is stored equals something that stands for a missing value, as -0.0 equals 0."""
    given = array.cast(stored, safe=False)
    found = functools.reduce(pc.or_, (pc.equal(given, pa.scalar(mark, stored)) for mark in marked), pa.scalar(False))
    return pc.if_else(found, pa.scalar(None, array.type), array)
