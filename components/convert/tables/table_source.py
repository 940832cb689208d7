"""Rows of a table with their labels, from blocks of its columns and a schema.

Values are stored as the schema says and are not prepared for a model: the manifest tells how to, and the model does.
What it tells comes from the training examples alone.
"""

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from common.errors import UserError
from common.manifest import Encoding, Feature
from components.convert import pieces
from components.convert.tables import vocabulary
from components.convert.tables.labels import evaluate, labels
from components.convert.tables.schema import Column, Input, Schema
from components.convert.tables.table_block import RowError, TableBlock
from components.convert.writing.byte_strings import Strings, counts
from components.convert.writing.content_hashes import content_hashes
from components.convert.writing.draws import By
from components.convert.writing.label_feature import LABEL


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSource(pieces.Source):
    """A table; how its pieces are read, `batches` says. It is looked at if there is a vocabulary to be found.

    Attributes:
      schema: Of the table.
      skip_bad: So many rows that are not what the schema says are left out, in each piece at most.
    """

    schema: Schema
    skip_bad: int = 0

    @classmethod
    def of(cls, schema: Schema, **more: Any) -> Self:
        """The table of that schema."""
        return cls(
            schema=schema,
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
            task=schema.label.task,
            class_names=schema.label.classes,
            targets=tuple(schema.label.targets),
            arguments={"schema": schema.content},
            looks=any(entry.vocabulary_size is not None for entry in schema.deep + schema.wide),
            deep=tuple(entry.encoding for entry in schema.deep),
            wide=tuple(entry.encoding for entry in schema.wide),
            **more,
        )

    @abc.abstractmethod
    def batches(self, piece: pieces.Piece) -> Iterator[TableBlock]:
        """Reads all rows of a piece, in order, some megabytes of them at a time; an error names file and place."""

    def headers(self) -> Mapping[str, Sequence[str]]:
        """All headers that a schema could name, each with the types that may fit, the likeliest first."""
        raise NotImplementedError

    def blocks(self, piece: pieces.Piece) -> Iterator[pieces.Block]:
        """Leaves out what the schema's filter does, and finds the labels."""
        for table, found, left_out in self._labelled(piece):
            yield pieces.Block(
                positions=table.positions,
                by=self._by(table),
                columns={LABEL: found, **{c.name: _stored(table, c) for c in self.schema.stored}},
                missing={c.name: table.missing(c.name) for c in self.schema.stored if c.default is not None},
                skipped=table.skipped,
                left_out=left_out,
            )

    def look(self, piece: pieces.Piece, training: pieces.Training) -> dict[str, Any]:
        """The least and largest integers and lengths of strings, and how often values occur in training rows."""
        bounds: dict[str, tuple[int, int]] = {}
        counted = self._frequencies()
        for table, _, _ in self._looked_at._labelled(piece):
            if not len(table.positions):
                continue
            columns = {c.name: _stored(table, c) for c in self.schema.stored if c.dtype != "float32"}
            for name, column in columns.items():
                numbers = column.lengths if isinstance(column, Strings) else column
                least, most = int(numbers.min()), int(numbers.max())
                low, high = bounds.get(name, (least, most))
                bounds[name] = min(low, least), max(high, most)
            if piece.split == "train":
                by = self._by(table)
                rows = training(table.positions) if by is None else training(table.positions, by)
                for (name, of), frequencies in counted.items():
                    frequencies.add(of(columns[name][rows]))
        return {"bounds": bounds, "counted": [frequencies.state for frequencies in counted.values()]}

    def settled(self, looks: Sequence[Any]) -> Self:
        """With the vocabularies, none of which may be without words, and room for the longest values."""
        most, negative, counted = {}, set(), self._frequencies()
        for look in looks:
            for name, (low, high) in look["bounds"].items():
                most[name] = max(high, most.get(name, 0))
                negative |= {name} if low < 0 and self.schema.columns[name].dtype != "string" else set()
            for frequencies, state in zip(counted.values(), look["counted"], strict=True):
                frequencies.add(state)
        most = {name: value for name, value in most.items() if name not in negative}
        deep, wide = (tuple(_found(e, counted) for e in part) for part in (self.schema.deep, self.schema.wide))
        return dataclasses.replace(self, looks=False, most=most, deep=deep, wide=wide)

    def too_many(self, last: str) -> UserError:
        """An error that tells of the last row that was wrong."""
        return UserError(f"{last}; more than --skip-bad {self.skip_bad} rows are wrong" if self.skip_bad else last)

    def _frequencies(self) -> dict[tuple[str, Callable], vocabulary.Frequencies]:
        """For each column with a vocabulary, and what is counted in its values: themselves, or words."""
        inputs = (entry for entry in self.schema.deep + self.schema.wide if entry.vocabulary_size is not None)
        return {_counted(entry): vocabulary.Frequencies() for entry in inputs}

    @property
    def _looked_at(self) -> Self:
        """The table without columns that a look has no need of; but if wrong rows are left out, these say which."""
        schema = self.schema
        needed = {schema.label.column, schema.split and schema.split.column}
        for expression in filter(None, (schema.filter, *schema.label.expressions)):
            needed |= expression.columns
        columns = {n: c for n, c in schema.columns.items() if self.skip_bad or n in needed or c.dtype != "float32"}
        schema = dataclasses.replace(schema, columns=columns, ignore_others=schema.ignore_others or not self.skip_bad)
        return dataclasses.replace(self, schema=schema)

    def _labelled(self, piece: pieces.Piece) -> Iterator[tuple[TableBlock, np.ndarray, int]]:
        """The rows that are stored, with their labels, and how many are left out by the filter."""
        condition, num_skipped = self.schema.filter, 0
        for table in self.batches(piece):
            kept = table.filtered(evaluate(condition, table, self.schema)) if condition else table
            left_out = len(table.positions) - len(kept.positions)
            while num_skipped + len(kept.skipped) <= self.skip_bad:
                try:
                    found = labels(kept, self.schema)
                    break
                except RowError as error:
                    others = np.arange(len(kept.positions)) != error.row
                    kept = dataclasses.replace(kept.filtered(others), skipped=(*kept.skipped, str(error)))
            else:
                raise self.too_many(kept.skipped[-1])
            num_skipped += len(kept.skipped)
            yield kept, found, left_out

    def _by(self, table: TableBlock) -> By | None:
        """What the schema says that decides about splits."""
        if (rule := self.schema.split) is None:
            return None
        values = _stored(table, self.schema.columns[rule.column])
        if rule.starts:
            return By(given={split: values >= start for split, start in rule.starts.items()})
        return By(groups=content_hashes(len(values), {rule.column: values}))


def _counted(entry: Input) -> tuple[str, Callable]:
    return entry.encoding.columns[0], vocabulary.words if entry.encoding.kind == "words" else counts


def _found(entry: Input, counted: Mapping[tuple[str, Callable], vocabulary.Frequencies]) -> Encoding:
    """The manifest's, given what was counted in the training examples."""
    if entry.vocabulary_size is None:
        return entry.encoding
    name, of = _counted(entry)
    values = counted[name, of].best(entry.vocabulary_size)
    if of is vocabulary.words and not values:
        raise UserError(f"column {name!r} has no words in the training split")
    return dataclasses.replace(entry.encoding, vocabulary=tuple(values))


def _stored(table: TableBlock, column: Column) -> np.ndarray | Strings:
    """The values of a column as they are written."""
    found = table.values(column)
    return Strings.of_arrow(found) if column.dtype == "string" else found.to_numpy().astype(column.dtype, copy=False)
