"""Shards: TFRecord files, each beside the content hashes and an index of its records.

    writer = ShardWriter("data/mnist/train-00003", layout)
    writer.append({"image": images, "label": labels}, hashes)
    shard = writer.close()                                # As the manifest describes it.

The hashes are little-endian uint64 [N]. There is an index only if records differ in length:
little-endian int64 [N + 1], the byte offsets of the records, and of the end.
"""

from collections.abc import Mapping

import google_crc32c
import numpy as np

from common.manifest import HEAD_BYTES, Shard
from common.storage.storage import storage_of
from components.convert.records import Column, Layout

RECORDS, HASHES, INDEX = ".tfrecord", ".hashes", ".index"


class ShardWriter:
    """Writes one shard. Its files appear, complete, when it is closed.

    On this machine they survive a loss of power only after `common.storage.files.flush`.

    Args:
      stem: Path of the files without their suffixes.
      layout: Layout of the records.
    """

    def __init__(self, stem: str, layout: Layout):
        self._name = stem.rpartition("/")[2]
        self._layout = layout
        self._examples = 0
        self._num_bytes = 0
        self._head = b""
        suffixes = (RECORDS, HASHES) if layout.record_bytes else (RECORDS, HASHES, INDEX)
        self._files = {
            suffix: storage_of(stem).create(stem + suffix, durable=False) for suffix in suffixes
        }
        if INDEX in self._files:
            self._files[INDEX].write(np.zeros(1, "<i8"))

    def append(self, columns: Mapping[str, Column], hashes: np.ndarray) -> None:
        """Appends N records.

        Args:
          columns: N values of each field, by its name, as `Layout.encode` takes them.
          hashes: Content hashes, uint64 [N].

        Raises:
          ValueError: If an integer needs more bytes than its field has.
          OSError: If a file cannot be written.
        """
        self._files[HASHES].write(np.ascontiguousarray(hashes, "<u8"))
        for rows in self._layout.chunks(columns):
            records, ends = self._layout.encode(
                {name: column[rows] for name, column in columns.items()}
            )
            if INDEX in self._files:
                self._files[INDEX].write((self._num_bytes + ends).astype("<i8"))
            self._head += records[: HEAD_BYTES - len(self._head)].tobytes()
            self._files[RECORDS].write(records)
            self._examples += len(ends)
            self._num_bytes += records.nbytes

    def close(self) -> Shard:
        """Makes the files appear, and returns the manifest's entry of the shard.

        Raises:
          OSError: If a file cannot be written, or a store does not answer.
        """
        closed = {suffix: file.close().crc32c for suffix, file in self._files.items()}
        return Shard(
            file=f"{self._name}{RECORDS}",
            examples=self._examples,
            bytes=self._num_bytes,
            crc32c=closed[RECORDS],
            head_crc32c=f"{google_crc32c.value(self._head):08x}",
            hashes=f"{self._name}{HASHES}",
            hashes_crc32c=closed[HASHES],
            index=f"{self._name}{INDEX}" if INDEX in closed else None,
            index_crc32c=closed.get(INDEX),
        )

    def abandon(self) -> None:
        """Discards the files if they were not closed; does nothing after `close`."""
        for file in self._files.values():
            file.abandon()
