"""Some rows of a table as its columns, with where they lie in the source."""

import dataclasses
import os
from collections.abc import Callable
from typing import Self

import numpy as np
import pyarrow as pa

from common.errors import UserError
from components.convert.tables.schema import Column

ARROW = {
    **{"float": pa.float64(), "int": pa.int64(), "time": pa.int64()},
    **{"string": pa.large_string(), "bool": pa.large_string()},
}
STORED = {"float": pa.float32(), "int": pa.int64(), "time": pa.int64()}  # of numbers


class RowError(UserError):
    """Something is wrong with that row of a block."""

    row: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableBlock:
    """Some rows of a file, in order.

    Attributes:
      columns: By feature name, of the types `ARROW`; null is where a value is missing, if the schema allows that.
      path: The file.
      positions: In the split, as `pieces.py` has them, int64 [N].
      locate: Tells of a position where in the file that row is.
      skipped: Rows that were wrong and are left out, each with its place and what was wrong.
    """

    columns: pa.RecordBatch
    path: str | os.PathLike[str]
    positions: np.ndarray
    locate: Callable[[int], str]
    skipped: tuple[str, ...] = ()

    def filtered(self, keep: np.ndarray) -> Self:
        """The rows for which `keep`, bool [N], is true."""
        return dataclasses.replace(self, columns=self.columns.filter(pa.array(keep)), positions=self.positions[keep])

    def values(self, column: Column) -> pa.Array:
        """The values of a column, with the default where one is missing."""
        found = self.columns[column.name]
        return found if column.default is None else found.fill_null(column.default)

    def missing(self, name: str) -> np.ndarray:
        """Where the source has no value of a column, bool [N]."""
        return self.columns[name].is_null().to_numpy(zero_copy_only=False)

    def error(self, row: int, message: str) -> RowError:
        """An error that names the file and the place of a row."""
        error = RowError(f"{self.path}: {self.locate(int(self.positions[row]))}: {message}")
        error.row = row
        return error
