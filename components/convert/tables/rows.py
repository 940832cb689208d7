"""Rows of a table as columns that are held, for readers that are not cut into pieces yet.

source = read({"train": csv_file.read([pathlib.Path("trips.csv")], schema)}, schema)
source.splits["train"]["fare"]            # float32 [N]
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from components.convert.pieces import Piece
from components.convert.source import Source
from components.convert.tables.schema import Schema
from components.convert.tables.table_block import TableBlock
from components.convert.tables.table_source import TableSource
from components.convert.tables.vocabulary import Frequencies
from components.convert.writing.byte_strings import Strings
from components.convert.writing.column_store import MEMORY, Store
from components.convert.writing.label_feature import LABEL
from components.convert.writing.splits import Rows
from trainer.base.errors import UserError
from trainer.base.manifest import Encoding


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Given(TableSource):
    """A table whose splits are at hand as blocks."""

    splits: Mapping[str, Iterable[TableBlock]]

    def batches(self, piece: Piece) -> Iterator[TableBlock]:
        """The blocks of the piece's split."""
        return iter(self.splits[piece.split])


def read(splits: Mapping[str, Iterable[TableBlock]], schema: Schema, store: Store = MEMORY) -> Source:
    """Leaves out what the schema's filter does, and finds the labels.

    Raises:
      UserError: If rows are not what the schema says; it names where they are. If the filter leaves nothing of a split.
    """
    if schema.split:
        raise UserError("split: is for CSV, JSON lines and Parquet files; take it out of the schema")
    table = _Given.of(schema, splits=splits)
    parts = {split: _part(table, split, store) for split in splits}
    pa.default_memory_pool().release_unused()  # what Arrow keeps for more blocks

    def encodings(training: Rows) -> dict[str, tuple[Encoding, ...]]:
        counted = [Frequencies() for _ in table.counted]
        for rows in training.blocks():
            for frequencies, (name, of) in zip(counted, table.counted, strict=True):
                frequencies.add(of(parts["train"][0][name][rows]))
        return table.encodings(counted)

    return Source(
        name=table.name,
        origin=table.origin,
        inputs=table.inputs,
        splits={split: columns for split, (columns, _) in parts.items()},
        task=table.task,
        class_names=table.class_names,
        targets=table.targets,
        arguments=table.arguments,
        missing={split: missing for split, (_, missing) in parts.items()},
        encodings=encodings,
    )


def _part(
    table: TableSource, split: str, store: Store
) -> tuple[dict[str, np.ndarray | Strings], dict[str, np.ndarray]]:
    """The columns of a split, and where they are missing."""
    schema, left_out, rounded = table.schema, 0, 0
    columns = {c.name: store.column(c.dtype) for c in schema.stored}
    columns[LABEL] = store.column(schema.label.feature.dtype)
    defaults = {c.name: store.column(bool) for c in schema.stored if c.default is not None}
    for block in table.blocks(Piece(split=split, position=0, extent=0)):
        left_out, rounded = left_out + block.left_out, rounded + block.rounded
        for name, column in columns.items():
            column.append(block.columns[name])
        for name, column in defaults.items():
            column.append(block.missing[name])
    held = {name: column.finish() for name, column in columns.items()}
    held[LABEL] = held[LABEL].reshape(-1, *schema.label.feature.shape)
    rows = len(held[LABEL])
    if schema.filter:
        print(f"{left_out:,} of {rows + left_out:,} rows are left out by the schema's filter", flush=True)
        if not rows:
            raise UserError("the schema's filter leaves no row")
    if rounded:
        print(f"{rounded:,} targets of {rows:,} rows are larger than 16,777,216 and rounded to 32-bit numbers")
    return held, {name: column.finish() for name, column in defaults.items()}
