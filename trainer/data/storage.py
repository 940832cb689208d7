"""Storages of the training split: in memory, or mapped from a local disk. A batch has the same values from each of them.

Each has `load()`, the tensors to keep on whichever device gathers, and `gather(loaded, indices)`, graph operations from
indices [N] into the split to columns by name [N, ...].
"""

import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from common.errors import UserError
from trainer.data.shards import MappedRecords, Shards

Columns = dict[str, tf.Tensor]


class Resident:
    """The whole split in memory, a tensor a column.

    TensorFlow keeps int32 arguments of a function in the host's memory whatever their device, and would send such a column
    to its replica whole in every step; so their bits pass for float32 ones.
    """

    def __init__(self, columns: Callable[[], Columns]) -> None:
        self._columns = columns  # reads the split, by graph operations

    def load(self) -> tuple[Columns, Columns]:
        """The columns as they are, and those of int32 as float32."""
        columns = self._columns()
        integers = {name: columns.pop(name) for name in list(columns) if columns[name].dtype == tf.int32}
        return columns, {name: tf.bitcast(column, tf.float32) for name, column in integers.items()}

    def gather(self, loaded: tuple[Columns, Columns], indices: tf.Tensor) -> Columns:
        """Rows of the columns."""
        plain, integers = ({name: tf.gather(c, indices) for name, c in columns.items()} for columns in loaded)
        return {**plain, **{name: tf.bitcast(rows, tf.int32) for name, rows in integers.items()}}


class Mapped:
    """Files on a local disk, mapped into memory; read by this process's Python, which checks every record."""

    def __init__(
        self, records: MappedRecords, decode: Callable[[tf.Tensor], Columns], record_bytes: int | None
    ) -> None:
        """Args: `decode` makes columns of records, in the form of `Shards.checked`."""
        self._records, self._decode, self._record_bytes = records, decode, record_bytes
        # Why a gathering in TensorFlow's threads failed; TensorFlow's own error does not name the file.
        self.failure: UserError | None = None

    def load(self) -> tuple[()]:
        """Nothing: files are no tensors."""
        return ()

    def gather(self, loaded: tuple[()], indices: tf.Tensor) -> Columns:
        """Records of the files, decoded."""
        is_fixed = self._record_bytes is not None
        records = tf.numpy_function(self._take, [indices], tf.uint8 if is_fixed else tf.string, stateful=False)
        records.set_shape([indices.shape[0], self._record_bytes] if is_fixed else [indices.shape[0]])
        return self._decode(records)

    def _take(self, indices: np.ndarray) -> np.ndarray:
        try:
            return self._records.take(indices)
        except UserError as error:
            self.failure = error
            raise


class MappedTensors:
    """Local files of records of one length, mapped into memory as tensors: no Python, so for parameter servers' workers.

    Checksums cannot be looked at on this way; who uses it checks the files beside it.
    """

    def __init__(self, shards: Shards, decode: Callable[[tf.Tensor], Columns]) -> None:
        self._shards, self._decode = shards, decode

    def load(self) -> tuple[tf.Tensor, ...]:
        """The records of each file, uint8 [records, record_bytes]."""
        size = self._shards.record_bytes
        return tuple(
            tf.raw_ops.ImmutableConst(dtype=tf.uint8, shape=[count, size], memory_region_name=os.fspath(path))
            for path, count in zip(self._shards.paths, np.diff(self._shards.starts).tolist(), strict=True)
        )

    def gather(self, loaded: tuple[tf.Tensor, ...], indices: tf.Tensor) -> Columns:
        """Rows of each file, put back into their order, decoded."""
        starts = tf.constant(self._shards.starts)
        file = tf.cast(tf.searchsorted(starts[1:], indices, side="right"), tf.int32)
        rows = tf.dynamic_partition(indices - tf.gather(starts, file), file, len(loaded))
        places = tf.dynamic_partition(tf.range(tf.size(indices)), file, len(loaded))
        return self._decode(tf.dynamic_stitch(places, [tf.gather(f, r) for f, r in zip(loaded, rows, strict=True)]))


Storage = Resident | Mapped | MappedTensors
