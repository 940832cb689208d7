"""Rows of a table with their labels, from blocks of its columns and a schema.

    source = read({"train": csv_file.read([pathlib.Path("trips.csv")], schema)}, schema)
    source.splits["train"]["fare"]            # float32 [N]

Values are stored as the schema says and are not prepared for a model: the manifest tells how to, and the model does.
What it tells comes from the training examples alone.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from components.convert.tables import vocabulary
from components.convert.tables.csv_parser import Block
from components.convert.tables.labels import Labels, evaluate, missing, values
from components.convert.tables.schema import Input, Schema
from components.convert.writing.byte_strings import Strings, counts
from components.convert.writing.column_store import MEMORY, Store
from components.convert.writing.label_feature import LABEL
from components.convert.writing.splits import Rows
from components.convert.writing.tfrecord import Field, Layout
from components.convert.writing.wire_format import varint_bytes
from trainer.base.errors import UserError
from trainer.base.manifest import Encoding, Feature

_BYTES_PER_VALUE = 200  # that a value takes while it is counted


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSource:
    """A table, as `base.Source` describes a source; work on its columns takes about `working_bytes` of memory.

    By split, `missing` says of each column with a default where a value is missing, bool [N].
    """

    name: str
    origin: str
    task: str
    class_names: tuple[str, ...]
    targets: tuple[str, ...]
    arguments: Mapping[str, object]
    schema: Schema
    splits: Mapping[str, Mapping[str, np.ndarray | Strings]]
    missing: Mapping[str, Mapping[str, np.ndarray]]
    working_bytes: float

    def layout(self) -> Layout:
        """How a record is laid out: every column, and the label."""
        fields = []
        for name, column in self.splits["train"].items():
            parts = [columns[name] for columns in self.splits.values()]
            if isinstance(column, Strings):
                longest = max(int(part.lengths.max()) for part in parts)
                field = Field(name=name, kind="string", num_bytes=longest)
            elif column.dtype == np.float32:
                field = Field(name=name, kind="float", num_bytes=4 * math.prod(column.shape[1:]))
            else:
                largest = max(int(part.max()) for part in parts)
                num_bytes = 10 if any(part.min() < 0 for part in parts) else varint_bytes(largest)
                field = Field(name=name, kind="int64", num_bytes=num_bytes * math.prod(column.shape[1:]))
            fields.append(field)
        return Layout(fields)

    def features(self) -> tuple[Feature, ...]:
        """The manifest's, without statistics."""
        columns = [
            Feature(
                name=c.name,
                dtype=c.dtype,
                unit=c.unit,
                default=c.default,
                missing=self.schema.missing,
                boolean=c.type == "bool" or None,
            )
            for c in self.schema.stored
        ]
        return tuple(sorted([self.schema.label.feature, *columns], key=lambda feature: feature.name))

    def encodings(self, training: Rows) -> dict[str, tuple[Encoding, ...]]:
        """The manifest's `deep` and `wide`, with the vocabularies of the training rows.

        What has no value in any of them cannot be normalised, which is a user error.
        """
        parts = {"deep": self.schema.deep, "wide": self.schema.wide}
        return {part: tuple(self._encoding(entry, training) for entry in inputs) for part, inputs in parts.items()}

    def _encoding(self, entry: Input, training: Rows) -> Encoding:
        name = entry.encoding.columns[0]
        absent = self.missing["train"].get(name)
        if (
            entry.encoding.kind == "numeric"
            and absent is not None
            and all(absent[rows].all() for rows in training.blocks())
        ):
            raise UserError(f"column {name!r} has no values in the training split, so it cannot be normalised")
        if entry.vocabulary_size is None:
            return entry.encoding
        values = vocabulary.most_frequent(
            self.splits["train"][name],
            training,
            entry.vocabulary_size,
            held=max(1000, int(min(1e9, self.working_bytes / _BYTES_PER_VALUE))),
            of=vocabulary.words if entry.encoding.kind == "words" else counts,
        )
        if entry.encoding.kind == "words" and not values:
            raise UserError(f"column {name!r} has no words in the training split")
        return dataclasses.replace(entry.encoding, vocabulary=tuple(values))


def read(splits: Mapping[str, Iterable[Block]], schema: Schema, store: Store = MEMORY) -> TableSource:
    """Leaves out what the schema's filter does, and finds the labels.

    Raises:
      UserError: If rows are not what the schema says; it names where they are. If the filter leaves nothing of a split.
    """
    parts = {split: _part(blocks, schema, store) for split, blocks in splits.items()}
    pa.default_memory_pool().release_unused()  # what Arrow keeps for more blocks
    return TableSource(
        name=schema.name,
        origin=schema.origin,
        task=schema.label.task,
        class_names=schema.label.classes,
        targets=tuple(schema.label.targets),
        arguments={"schema": schema.content},
        schema=schema,
        splits={split: columns for split, (columns, _) in parts.items()},
        missing={split: missing for split, (_, missing) in parts.items()},
        working_bytes=store.working_bytes,
    )


def _part(
    blocks: Iterable[Block], schema: Schema, store: Store
) -> tuple[dict[str, np.ndarray | Strings], dict[str, np.ndarray]]:
    """The columns of a split, and where they are missing."""
    labels, rows, kept = Labels(schema, store), 0, 0
    columns = {c.name: store.texts() if c.dtype == "string" else store.column(c.dtype) for c in schema.stored}
    defaults = {c.name: store.column(bool) for c in schema.stored if c.default is not None}
    for block in blocks:
        rows += len(block.positions)
        if schema.filter:
            block = block.filtered(evaluate(schema.filter, block, schema))
        kept += len(block.positions)
        if not labels.append(block):
            continue
        for name, column in columns.items():
            found = values(block, schema.columns[name])
            column.append(Strings.of_arrow(found) if pa.types.is_large_string(found.type) else found.to_numpy())
        for name, column in defaults.items():
            column.append(missing(block, name))
    if schema.filter:
        print(f"{rows - kept:,} of {rows:,} rows are left out by the schema's filter", flush=True)
        if not kept:
            raise UserError(f"{block.path}: the schema's filter leaves no row")
    held = {LABEL: labels.finish(), **{name: column.finish() for name, column in columns.items()}}
    return held, {name: column.finish() for name, column in defaults.items()}
