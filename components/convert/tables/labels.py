"""What is to be predicted of each row: its class, numbers, or which of several labels apply.

labels(block, schema)         # int64 [N], float32 [N] or [N, k], int64 [N, k]
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION
from components.convert.tables.expressions import Expression
from components.convert.tables.schema import Schema
from components.convert.tables.table_block import TableBlock


def labels(block: TableBlock, schema: Schema) -> np.ndarray:
    """The labels of some rows; an error names the row that has none, or one that is not allowed."""
    is_computed = schema.label.task == REGRESSION  # from numbers, for which defaults stand in
    needed = sorted(n for n in schema.label.sources if not is_computed or schema.columns[n].default is None)
    absent = {name: block.missing(name) for name in needed}
    if any(map(np.any, absent.values())):
        row = int(np.logical_or.reduce([*absent.values()]).argmax())
        present = [f"{{present: {name}}}" for name in needed]
        kept = present[0] if len(present) == 1 else f"{{all: [{', '.join(present)}]}}"
        raise block.error(
            row,
            f"{next(name for name in needed if absent[name][row])} is missing, and nothing can be learnt of a row without "
            f"what is predicted; leave such rows out with 'filter: {kept}', unless its header in the schema is another's",
        )
    if schema.label.task == CLASSIFICATION:
        return _classes(block, schema)
    return _targets(block, schema).reshape(-1, *schema.label.feature.shape)


def _targets(block: TableBlock, schema: Schema) -> np.ndarray:
    """The targets of each row, [N, k]."""
    label, dtype = schema.label, schema.label.feature.dtype
    found = np.empty((len(block.positions), len(label.targets)), dtype)
    for i, (name, expression) in enumerate(label.targets.items()):
        with np.errstate(over="ignore", invalid="ignore"):
            exact = evaluate(expression, block, schema)
            stored = found[:, i] = exact.astype(dtype)
        multi = label.task == MULTI_LABEL
        wrong = (exact != 0) & (exact != 1) if multi else ~np.isfinite(stored)
        if wrong.any():
            row = int(wrong.argmax())
            what = "is neither 0 nor 1" if multi else "is no finite 32-bit number"
            raise block.error(row, f"{name}: {exact[row]} {what}")
    return found


def _classes(block: TableBlock, schema: Schema) -> np.ndarray:
    """The class of each row, int64 [N]."""
    label = schema.label
    if label.condition:
        return evaluate(label.condition, block, schema).astype(np.int64)
    given, known = block.values(schema.columns[label.column]), f"0 to {len(label.classes) - 1}"
    classes = given
    if schema.columns[label.column].dtype == "string":
        known = ", ".join(label.classes)
        classes = pc.index_in(given, pa.array(label.classes, given.type)).fill_null(-1)
    classes = classes.to_numpy().astype(np.int64)
    if (wrong := (classes < 0) | (classes >= len(label.classes))).any():
        row = int(wrong.argmax())
        raise block.error(row, f"{label.column}: {str(given[row])!r} is no class (known: {known})")
    return classes


def evaluate(expression: Expression, block: TableBlock, schema: Schema) -> np.ndarray:
    """What the expression is of each row, [N]; what is missing and has no default compares with nothing."""
    given = {name: _values(block.values(schema.columns[name])) for name in expression.columns}
    return expression.evaluate(given, {name: block.missing(name) for name in expression.columns})


def _values(found: pa.Array) -> np.ndarray:
    """The values of a column, masked where there are none: nulls would make floats of whole numbers that these do not hold."""
    if not found.null_count:
        return found.to_numpy(zero_copy_only=False)
    filled = found.fill_null("" if pa.types.is_large_string(found.type) else 0)
    return np.ma.array(filled.to_numpy(zero_copy_only=False), mask=found.is_null().to_numpy(zero_copy_only=False))
