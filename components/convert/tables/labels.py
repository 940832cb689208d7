"""What is to be predicted of each row: its class, numbers, or which of several labels apply.

labels = Labels(schema, store)
labels.append(block)          # False: a target is missing, and rows are only counted from here on
labels.finish()               # int64 [N], float32 [N] or [N, k], int64 [N, k]
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.convert.tables.csv_parser import Block
from components.convert.tables.expressions import Expression
from components.convert.tables.schema import Column, Schema
from components.convert.writing.column_store import Store
from trainer.base.manifest import CLASSIFICATION, MULTI_LABEL

_EXACT = 1 << 24  # up to which a float32 holds every whole number


class Labels:
    """The labels of the rows of a split."""

    def __init__(self, schema: Schema, store: Store):
        self._schema, self._values = schema, store.column(schema.label.feature.dtype)
        self._needed = sorted(name for name in schema.label.sources if schema.columns[name].default is None)
        self._rows = self._lacking = self._rounded = 0
        self._first: tuple[Block, int, str] | None = None  # a row without a target, and the column
        self._absent: set[str] = set()

    def append(self, block: Block) -> bool:
        """Takes in the rows of a block; returns whether none so far lacks a target.

        Raises:
          UserError: If a label is none of the classes, neither 0 nor 1, or no finite number; it names the row.
        """
        self._rows += len(block.positions)
        given = {name: missing(block, name) for name in self._needed}
        if absent := [name for name, rows in given.items() if rows.any()]:
            lacking = np.logical_or.reduce([given[name] for name in absent])
            row = int(lacking.argmax())
            self._first = self._first or (block, row, next(name for name in absent if given[name][row]))
            self._lacking += int(lacking.sum())
            self._absent.update(absent)
        if self._first is None:
            classes = self._schema.label.task == CLASSIFICATION
            self._values.append(_classes(block, self._schema) if classes else self._targets(block))
        return self._first is None

    def finish(self) -> np.ndarray:
        """All of them; nothing can be appended any more.

        Raises:
          UserError: If a row lacks a target; it names the first one, and says how many there are.
        """
        if self._first:
            present = [f"{{present: {name}}}" for name in sorted(self._absent)]
            kept = present[0] if len(present) == 1 else f"{{all: [{', '.join(present)}]}}"
            block, row, name = self._first
            many = f"{self._lacking:,} of {self._rows:,} are such; leave them out with 'filter: {kept}'"
            if self._lacking == self._rows:
                many = "all are such; perhaps its header in the schema is another column's"
            raise block.error(
                row, f"{name} is missing, and nothing can be learnt of a row without what is predicted; {many}"
            )
        if self._rounded:
            print(
                f"{self._rounded:,} targets of {self._rows:,} rows are larger than {_EXACT:,} and rounded to 32-bit numbers",
                flush=True,
            )
        return self._values.finish().reshape(-1, *self._schema.label.feature.shape)

    def _targets(self, block: Block) -> np.ndarray:
        """The targets of each row, [N, k]."""
        label, dtype = self._schema.label, self._schema.label.feature.dtype
        found = np.empty((len(block.positions), len(label.targets)), dtype)
        for i, (name, expression) in enumerate(label.targets.items()):
            with np.errstate(over="ignore", invalid="ignore"):
                exact = evaluate(expression, block, self._schema)
                stored = found[:, i] = exact.astype(dtype)
                self._rounded += int(((np.abs(exact) > _EXACT) & (stored.astype(exact.dtype) != exact)).sum())
            multi = label.task == MULTI_LABEL
            wrong = (exact != 0) & (exact != 1) if multi else ~np.isfinite(stored)
            if wrong.any():
                row = int(wrong.argmax())
                what = "is neither 0 nor 1" if multi else "is no finite 32-bit number"
                raise block.error(row, f"{name}: {exact[row]} {what}")
        return found


def _classes(block: Block, schema: Schema) -> np.ndarray:
    """The class of each row, int64 [N]."""
    label = schema.label
    if label.condition:
        return evaluate(label.condition, block, schema).astype(np.int64)
    given, known = values(block, schema.columns[label.column]), f"0 to {len(label.classes) - 1}"
    classes = given
    if schema.columns[label.column].dtype == "string":
        known = ", ".join(label.classes)
        classes = pc.index_in(given, pa.array(label.classes, given.type)).fill_null(-1)
    classes = classes.to_numpy().astype(np.int64)
    if (wrong := (classes < 0) | (classes >= len(label.classes))).any():
        row = int(wrong.argmax())
        raise block.error(row, f"{label.column}: {str(given[row])!r} is no class (known: {known})")
    return classes


def evaluate(expression: Expression, block: Block, schema: Schema) -> np.ndarray:
    """What the expression is of each row, [N]; what is missing and has no default is NaN."""
    given = {n: values(block, schema.columns[n]).to_numpy(zero_copy_only=False) for n in expression.columns}
    return expression.evaluate(given, {name: missing(block, name) for name in expression.columns})


def values(block: Block, column: Column) -> pa.Array:
    """The values of a column, with the default where one is missing."""
    found = block.columns[column.name]
    return found if column.default is None else found.fill_null(column.default)


def missing(block: Block, name: str) -> np.ndarray:
    """Where the source has no value of a column, bool [N]."""
    return block.columns[name].is_null().to_numpy(zero_copy_only=False)
