"""Rows of a table in the records of TFRecord files: a feature for each column, or an element of one.

    source = RecordTable.of(schema, cut=cut)

A column's header is the key of its feature; `sizes[2]` is the third value of the feature `sizes`.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from common.errors import UserError, unknown
from components.convert.pieces import Cut, Piece
from components.convert.sources.examples.parser import Record, groups, place, records
from components.convert.tables import arrow_columns
from components.convert.tables.schema import Column
from components.convert.tables.table_block import TableBlock
from components.convert.tables.table_source import TableSource

_GIVEN = {"int": pa.int64(), "float": pa.float32()}


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
            given = {column.header: _given(group, column) for column in self.schema.columns.values()}

            def error(row: int, what: str, group: Sequence[Record] = group) -> UserError:
                return group[row].error(what)

            starts = {record.position: record.start for record in group}
            yield TableBlock(
                columns=arrow_columns.columns(pa.RecordBatch.from_pydict(given), self.schema, error),
                path=group[0].path,
                positions=np.array(list(starts)),
                locate=lambda position, starts=starts: f"record at byte {starts[position]:,}",
            )


def _given(group: Sequence[Record], column: Column) -> pa.Array:
    """What the records have of a column, null where one has nothing."""
    key, index = place(column.header)
    kind = column.type if column.type in _GIVEN else "string"
    values = [record.value(key, kind, index) for record in group]
    if column.required and None in values:
        raise group[values.index(None)].lacks(key)
    return pa.array(values, _GIVEN.get(kind, pa.binary()))
