"""Rows of a table in the records of TFRecord files: a feature for each column, or an element of one.

    source = RecordTable.of(schema, cut=cut)

A column's header is the key of its feature; `sizes[2]` is the third value of the feature `sizes`.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from components.convert.pieces import Cut, Piece
from components.convert.sources.examples.parser import Record, groups, place, records
from components.convert.tables import booleans, times
from components.convert.tables.schema import Column
from components.convert.tables.table_block import ARROW, TableBlock
from components.convert.tables.table_source import TableSource
from trainer.base.errors import unknown
from trainer.base.spellings import EITHER, marks


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordTable(TableSource):
    """A table whose rows are records."""

    cut: Cut

    def batches(self, piece: Piece) -> Iterator[TableBlock]:
        """The rows of a piece, in order; a `UserError` names the record that is not what the schema says."""
        keys = {place(column.header)[0] for column in self.schema.columns.values()}
        for group in groups(records(self.cut, piece)):
            if not self.schema.ignore_others:
                for record in group:
                    if others := sorted(set(record.features) - keys):
                        what = unknown("feature", others[0], keys)
                        raise record.error(f"{what}; add it to the schema, or 'other_columns: ignore'")
            columns = {
                name: _column(group, column, self.schema.missing) for name, column in self.schema.columns.items()
            }
            starts = {record.position: record.start for record in group}
            yield TableBlock(
                columns=pa.RecordBatch.from_pydict(columns),
                path=group[0].path,
                positions=np.array(list(starts)),
                locate=lambda position, starts=starts: f"record at byte {starts[position]:,}",
            )


def _column(group: Sequence[Record], column: Column, texts: Sequence[str]) -> pa.Array:
    """The values of a column, null where they are missing."""
    key, index = place(column.header)
    kind = "string" if column.type in ("bool", "time") else column.type
    given = [record.value(key, kind, index) for record in group]
    missing = marks(texts, "string" if kind == "string" else column.dtype)
    marked = {mark.encode() if isinstance(mark, str) else mark for mark in missing}
    values = [None if value in marked or value != value else value for value in given]
    if column.required and None in values:
        row = values.index(None)
        if given[row] is None:
            raise group[row].lacks(key)
        raise group[row].error(
            f"{column.name}: {given[row]!r} is a missing value, and the schema has no default for it"
        )
    if kind == "string":
        texts = _texts(group, column, values)
        if column.type == "time":
            found = times.seconds(texts)
            if strange := times.strange(texts, found):
                raise group[strange[0]].error(f"{column.name}: {str(texts[strange[0]])!r} is no {times.TOLD}")
            return found
        texts = booleans.respelled(texts) if column.type == "bool" else texts
        if column.type == "bool" and (strange := booleans.strange(texts)):
            raise group[strange[0]].error(f"{column.name}: {texts[strange[0]]} is no boolean, which is {EITHER}")
        return texts
    for record, value in zip(group, values, strict=True):
        if value is not None and not math.isfinite(value):
            raise record.error(f"{column.name}: {value} is no finite 32-bit number")
    return pa.array(values, ARROW[column.type])


def _texts(group: Sequence[Record], column: Column, values: Sequence[bytes | None]) -> pa.LargeStringArray:
    try:
        return pa.array(values, pa.large_string())
    except pa.ArrowInvalid:
        for record, value in zip(group, values, strict=True):
            try:
                (value or b"").decode()
            except UnicodeDecodeError:
                raise record.error(f"{column.name}: {value[:40]!r} is not UTF-8") from None
        raise
