"""Rows of a table with their labels, from blocks of its columns and a schema.

    source = read({"train": csv_file.read([pathlib.Path("trips.csv")], schema)}, schema)
    source.splits["train"]["fare"]            # float32 [N]

Values are stored as the schema says and are not prepared for a model: the manifest tells how to, and the model does.
What it tells comes from the training examples alone.
"""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from components.convert.source import Source
from components.convert.tables import vocabulary
from components.convert.tables.csv_parser import Block
from components.convert.tables.labels import Labels, evaluate, missing, values
from components.convert.tables.schema import Input, Schema
from components.convert.writing.byte_strings import Strings, counts
from components.convert.writing.column_store import MEMORY, Store
from components.convert.writing.label_feature import LABEL
from components.convert.writing.splits import Rows
from trainer.base.errors import UserError
from trainer.base.manifest import Encoding, Feature

_BYTES_PER_VALUE = 200  # that a value takes while it is counted


def read(splits: Mapping[str, Iterable[Block]], schema: Schema, store: Store = MEMORY) -> Source:
    """Leaves out what the schema's filter does, and finds the labels.

    Raises:
      UserError: If rows are not what the schema says; it names where they are. If the filter leaves nothing of a split.
        From `encodings`, if an input has no values in any of the training rows.
    """
    parts = {split: _part(blocks, schema, store) for split, blocks in splits.items()}
    pa.default_memory_pool().release_unused()  # what Arrow keeps for more blocks
    held = max(1000, int(min(1e9, store.working_bytes / _BYTES_PER_VALUE)))
    columns, missing = parts["train"]

    def encodings(training: Rows) -> dict[str, tuple[Encoding, ...]]:
        def found(entry: Input) -> Encoding:
            name = entry.encoding.columns[0]
            return _encoding(entry, columns[name], missing.get(name), training, held)

        return {"deep": tuple(map(found, schema.deep)), "wide": tuple(map(found, schema.wide))}

    return Source(
        name=schema.name,
        origin=schema.origin,
        inputs=tuple(
            Feature(
                name=c.name,
                dtype=c.dtype,
                unit=c.unit,
                default=c.default,
                missing=schema.missing,
                boolean=c.type == "bool" or None,
            )
            for c in schema.stored
        ),
        splits={split: columns for split, (columns, _) in parts.items()},
        task=schema.label.task,
        class_names=schema.label.classes,
        targets=tuple(schema.label.targets),
        arguments={"schema": schema.content},
        missing={split: missing for split, (_, missing) in parts.items()},
        encodings=encodings,
    )


def _encoding(
    entry: Input, column: np.ndarray | Strings, missing: np.ndarray | None, training: Rows, held: int
) -> Encoding:
    """What an input becomes by the training rows of its column."""
    encoding, of_words = entry.encoding, entry.encoding.kind == "words"
    if encoding.kind == "numeric" and missing is not None and all(missing[rows].all() for rows in training.blocks()):
        raise UserError(
            f"column {encoding.columns[0]!r} has no values in the training split, so it cannot be normalised"
        )
    if entry.vocabulary_size is None:
        return encoding
    of = vocabulary.words if of_words else counts
    values = vocabulary.most_frequent(column, training, entry.vocabulary_size, held=held, of=of)
    if of_words and not values:
        raise UserError(f"column {encoding.columns[0]!r} has no words in the training split")
    return dataclasses.replace(encoding, vocabulary=tuple(values))


def _part(
    blocks: Iterable[Block], schema: Schema, store: Store
) -> tuple[dict[str, np.ndarray | Strings], dict[str, np.ndarray]]:
    """The columns of a split, and where they are missing."""
    labels, rows, kept = Labels(schema, store), 0, 0
    columns = {c.name: store.column(c.dtype) for c in schema.stored}
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
