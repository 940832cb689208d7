"""Rows of a table in the records of TFRecord files: a feature for each column, or an element of one.

    table.read(schema, {"train": blocks(records("train", paths), schema)}, store)

A column's header is the key of its feature; `sizes[2]` is the third value of the feature `sizes`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from components.convert.sources.examples.parser import Record, groups
from components.convert.tables.csv_parser import Block
from components.convert.tables.schema import Column, Schema
from trainer.base.errors import unknown

_ELEMENT = re.compile(r"(?P<key>.+)\[(?P<index>[0-9]+)\]")


def place(header: str) -> tuple[str, int | None]:
    """The key of a column's feature, and which of its values it is; None of the only one."""
    element = _ELEMENT.fullmatch(header)
    return (element["key"], int(element["index"])) if element else (header, None)


def blocks(found: Iterable[Record], schema: Schema) -> Iterator[Block]:
    """The rows, in order.

    Raises:
      UserError: If a record is not what the schema says.
    """
    keys = {place(column.header)[0] for column in schema.columns.values()}
    for group in groups(found):
        if not schema.ignore_others:
            for record in group:
                if others := sorted(set(record.features) - keys):
                    what = unknown("feature", others[0], keys)
                    raise record.error(f"{what}; add it to the schema, or 'other_columns: ignore'")
        columns, missing = {}, {}
        for name, column in schema.columns.items():
            values, gone = _column(group, column, schema.missing)
            if column.default is not None:
                missing[name] = gone
            columns[name] = values
        yield Block(
            columns=columns,
            missing=missing,
            path=group[0].path,
            positions=np.array([record.start for record in group]),
            locate="record at byte {:,}".format,
        )


def _column(
    group: Sequence[Record], column: Column, marks: Sequence[str]
) -> tuple[np.ndarray | pa.LargeStringArray, np.ndarray]:
    """The values of a column, and where they are missing, bool [N]: there the default stands."""
    key, index = place(column.header)
    values = [record.value(key, column.type, index) for record in group]
    marked = _as_values(marks, column)
    nan = any(mark != mark for mark in marked)
    missing = np.array([value is None or value in marked or (nan and value != value) for value in values])
    if column.default is None and missing.any():
        row = int(missing.argmax())
        if values[row] is None:
            raise group[row].lacks(key)
        raise group[row].error(
            f"{column.name}: {values[row]!r} is a missing value, and the schema has no default for it"
        )
    default = column.default.encode() if isinstance(column.default, str) else column.default
    values = [default if absent else value for value, absent in zip(values, missing.tolist(), strict=True)]
    if column.type == "string":
        return _texts(group, column, values), missing
    values = np.array(values, np.int64 if column.type == "int" else np.float64)
    if not (finite := np.isfinite(values)).all():
        row = int(finite.argmin())
        raise group[row].error(f"{column.name}: {values[row]} is no finite 32-bit number")
    return values, missing


def _as_values(marks: Sequence[str], column: Column) -> set[bytes | int | float]:
    """The texts that stand for a missing value, as a feature would hold them."""
    convert = {"string": str.encode, "int": int, "float": lambda mark: float(np.float32(mark))}[column.type]
    found = set()
    for mark in marks:
        with contextlib.suppress(ValueError):
            found.add(convert(mark))
    return found


def _texts(group: Sequence[Record], column: Column, values: Sequence[bytes]) -> pa.LargeStringArray:
    try:
        return pa.array(values, pa.large_string())
    except pa.ArrowInvalid:
        for record, value in zip(group, values, strict=True):
            try:
                value.decode()
            except UnicodeDecodeError:
                raise record.error(f"{column.name}: {value[:40]!r} is not UTF-8") from None
        raise
