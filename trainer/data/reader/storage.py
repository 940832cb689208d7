"""Where the examples of the training split are, and how a batch of them is gathered: in three ways, to the same values.

Each has `load()`, the tensors to keep on whichever device gathers, and `gather(loaded, indices, position)`, graph
operations from the indices [N] that the order has at a position to columns by name [N, ...].
"""

import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from trainer.base.errors import UserError
from trainer.data.reader.chunks import Chunks
from trainer.data.reader.shards import Shards

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

    def gather(self, loaded: tuple[Columns, Columns], indices: tf.Tensor, position: tf.Tensor) -> Columns:
        """Rows of the columns."""
        plain, integers = ({name: tf.gather(c, indices) for name, c in columns.items()} for columns in loaded)
        return {**plain, **{name: tf.bitcast(rows, tf.int32) for name, rows in integers.items()}}


class Chunked:
    """Files mapped into memory or read in chunks, by this process's Python; every record that is used is checked."""

    def __init__(self, chunks: Chunks, decode: Callable[[tf.Tensor], Columns], record_bytes: int | None) -> None:
        """Args: `decode` makes columns of records, in the form of `shards.take`."""
        self.chunks, self._decode, self._record_bytes = chunks, decode, record_bytes
        # Why a gathering in TensorFlow's threads failed; what TensorFlow makes of it does not say.
        self.failure: UserError | None = None

    def load(self) -> tuple[()]:
        """Nothing: files are no tensors."""
        return ()

    def gather(self, loaded: tuple[()], indices: tf.Tensor, position: tf.Tensor) -> Columns:
        """Records from the chunks, decoded."""
        fixed = self._record_bytes is not None
        records = tf.numpy_function(self._take, [indices, position], tf.uint8 if fixed else tf.string, stateful=False)
        records.set_shape([indices.shape[0], self._record_bytes] if fixed else [indices.shape[0]])
        return self._decode(records)

    def _take(self, indices: np.ndarray, position: np.ndarray) -> np.ndarray:
        try:
            return self.chunks.take(indices, int(position))
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

    def gather(self, loaded: tuple[tf.Tensor, ...], indices: tf.Tensor, position: tf.Tensor) -> Columns:
        """Rows of each file, put back into their order, decoded."""
        starts = tf.constant(self._shards.starts)
        file = tf.cast(tf.searchsorted(starts[1:], indices, side="right"), tf.int32)
        rows = tf.dynamic_partition(indices - tf.gather(starts, file), file, len(loaded))
        places = tf.dynamic_partition(tf.range(tf.size(indices)), file, len(loaded))
        return self._decode(tf.dynamic_stitch(places, [tf.gather(f, r) for f, r in zip(loaded, rows, strict=True)]))


Storage = Resident | Chunked | MappedTensors
