"""Rows of a table with their labels, from CSV files and a schema.

    source = read([pathlib.Path("trips.csv")], schema)
    source.splits["train"]["fare"]            # float32 [N]

Values are stored as the schema says and are not prepared for a model: the manifest tells how to, and the model does.
What it tells comes from the training examples alone.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.convert import csv_file
from components.convert.csv_file import Table
from components.convert.schema import LABEL, Input, Label, Schema
from components.convert.strings import Strings
from components.convert.tfrecord import Column, Field, Layout
from components.convert.wire import varint_bytes
from trainer.errors import UserError
from trainer.manifest import Encoding, Feature, Statistics


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSource:
    """A table in memory.

    Attributes:
      schema: What the columns are.
      splits: `train` alone, with a column for each of the schema's and `label`.
      missing: Of each column with a default, bool [N]: where a value is missing.
    """

    schema: Schema
    splits: Mapping[str, Mapping[str, Column]]
    missing: Mapping[str, np.ndarray]

    @property
    def name(self) -> str:
        """Of the dataset."""
        return self.schema.name

    @property
    def origin(self) -> str:
        """Where the table comes from, in words."""
        return self.schema.origin

    @property
    def class_names(self) -> tuple[str, ...]:
        """In the order of the labels."""
        return self.schema.label.classes

    @property
    def arguments(self) -> dict[str, object]:
        """What decides the content beside the options."""
        return {"schema": self.schema.content}

    @property
    def _columns(self) -> Mapping[str, Column]:
        return self.splits["train"]

    def layout(self) -> Layout:
        """How a record is laid out: every column, and the label."""
        fields = []
        for name, values in self._columns.items():
            if isinstance(values, Strings):
                field = Field(name=name, kind="string", num_bytes=int(values.lengths.max()))
            elif values.dtype == np.float32:
                field = Field(name=name, kind="float", num_bytes=4)
            else:
                num_bytes = 10 if values.min() < 0 else varint_bytes(int(values.max()))
                field = Field(name=name, kind="int64", num_bytes=num_bytes)
            fields.append(field)
        return Layout(fields)

    def features(self, training: np.ndarray) -> tuple[Feature, ...]:
        """The manifest's, with statistics of the training rows."""
        label = Feature(name=LABEL, dtype="int64", value_range=(0.0, len(self.class_names) - 1.0))
        columns = [
            Feature(
                name=column.name,
                dtype=column.dtype,
                unit=column.unit,
                default=column.default,
                statistics=self._statistics(column.name, training),
            )
            for column in self.schema.stored
        ]
        return tuple(sorted([label, *columns], key=lambda feature: feature.name))

    def encodings(self, training: np.ndarray) -> dict[str, tuple[Encoding, ...]]:
        """The manifest's `deep` and `wide`, with the vocabularies of the training rows.

        Raises:
          UserError: If none of these rows has a value of a column that is to be normalised.
        """
        parts = {"deep": self.schema.deep, "wide": self.schema.wide}
        return {part: tuple(self._encoding(entry, training) for entry in inputs) for part, inputs in parts.items()}

    def _encoding(self, entry: Input, training: np.ndarray) -> Encoding:
        name = entry.encoding.columns[0]
        if entry.encoding.kind == "numeric" and self._statistics(name, training).mean is None:
            raise UserError(f"column {name!r} has no values in the training split, so it cannot be normalised")
        if entry.vocabulary_size is None:
            return entry.encoding
        values = self._columns[name][training].tolist()
        ranked = sorted(collections.Counter(values).items(), key=lambda item: (-item[1], item[0]))
        vocabulary = (value.decode() if isinstance(value, bytes) else value for value, _ in ranked)
        return dataclasses.replace(entry.encoding, vocabulary=tuple(vocabulary)[: entry.vocabulary_size])

    def _statistics(self, name: str, training: np.ndarray) -> Statistics:
        values, missing = self._columns[name], self.missing.get(name)
        present = training if missing is None else training[~missing[training]]
        absent = len(training) - len(present)
        if isinstance(values, Strings) or not len(present):
            return Statistics(missing=absent)
        values = values[present]
        numbers = values.astype(np.float64)
        mean = _sum(numbers) / len(numbers)
        return Statistics(
            missing=absent,
            mean=mean,
            std=math.sqrt(_sum((numbers - mean) ** 2) / len(numbers)),
            min=values.min().item(),
            max=values.max().item(),
        )


def read(paths: Sequence[pathlib.Path], schema: Schema) -> TableSource:
    """Reads CSV files, leaves out what the schema's filter does, and finds the labels.

    Raises:
      UserError: If a file is not what the schema says; it names file and line. If the filter leaves nothing.
    """
    table = csv_file.read(paths, schema)
    if schema.filter:
        keep = schema.filter.evaluate(_operands(table, schema.filter.columns), table.missing)
        print(f"{(~keep).sum():,} of {len(keep):,} rows are left out by the schema's filter", flush=True)
        if not keep.any():
            raise UserError(f"{paths[0]}: the schema's filter leaves no row")
        table = table.filtered(keep)
    columns = {LABEL: _labels(table, schema.label)}
    for column in schema.stored:
        values = table.columns[column.name]
        columns[column.name] = _strings(values) if column.type == "string" else values.astype(column.dtype, copy=False)
    return TableSource(schema=schema, splits={"train": columns}, missing=table.missing)


def _labels(table: Table, label: Label) -> np.ndarray:
    """The class of each row, int64 [N]."""
    if label.condition:
        values = label.condition.evaluate(_operands(table, label.condition.columns), table.missing)
        return values.astype(np.int64)
    given, known = table.columns[label.column], f"0 to {len(label.classes) - 1}"
    classes = given
    if isinstance(given, pa.Array):
        known = ", ".join(label.classes)
        classes = pc.index_in(given, pa.array(label.classes, given.type)).fill_null(-1).to_numpy().astype(np.int64)
    if (wrong := (classes < 0) | (classes >= len(label.classes))).any():
        row = int(wrong.argmax())
        raise table.error(row, f"{label.column}: {str(given[row])!r} is no class (known: {known})")
    return classes


def _operands(table: Table, names: frozenset[str]) -> dict[str, np.ndarray]:
    values = {name: table.columns[name] for name in names}
    return {k: v.to_numpy(zero_copy_only=False) if isinstance(v, pa.Array) else v for k, v in values.items()}


def _strings(array: pa.LargeStringArray) -> Strings:
    _, offsets, data = array.buffers()
    offsets = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]]
    return Strings(data=data, lengths=np.diff(offsets))


def _sum(values: np.ndarray) -> float:
    # One after the other: how NumPy's own sum goes about it depends on the processor, and with it the last digit.
    return float(np.cumsum(values)[-1])
