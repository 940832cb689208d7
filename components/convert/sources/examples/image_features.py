"""Images in the records of TFRecord files: where they lie there, if they are PNG or JPEG files, or their pixels.

pictures, labels = encoded("train", paths, schema, store)
pictures.open(0).read()     # the first file
"""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Sequence
from typing import IO

import numpy as np

from components.convert.sources.examples.parser import Record, any_packed, collect, records
from components.convert.tables.schema import ImageSchema
from components.convert.writing.byte_strings import Strings
from components.convert.writing.column_store import Store
from trainer.base.framing import HEADER_BYTES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slices:
    """Image files that lie in other files.

    Attributes:
      paths: Of these files.
      files: Of each image, the position of its file, [N].
      starts: Where it starts there, int64 [N].
      lengths: Bytes of each, int64 [N].
      unpacked: The images, if files are packed.
    """

    paths: Sequence[str]
    files: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    unpacked: Strings | None = None

    def open(self, i: int) -> IO[bytes]:
        """The content of one."""
        if self.unpacked is not None:
            start, end = self.unpacked.offsets[i : i + 2]
            return io.BytesIO(self.unpacked.data[start:end])
        with open(self.paths[self.files[i]], "rb") as file:
            file.seek(self.starts[i])
            return io.BytesIO(file.read(self.lengths[i]))

    def place(self, i: int) -> str:
        """The file of one, and where in it."""
        return f"{self.paths[self.files[i]]}: image at byte {self.starts[i]:,}"


def encoded(split: str, paths: Sequence[str], schema: ImageSchema, store: Store) -> tuple[Slices, np.ndarray]:
    """Where the image files of a split are, and their classes [N].

    Raises:
      UserError: If a file is damaged, or a record has no image or no class.
    """
    packed = any_packed(paths)

    def extract(record: Record) -> tuple:
        data = record.needed(schema.image, "string")
        start = record.start + HEADER_BYTES + record.payload.find(data)
        return record.file, start, len(data), record.class_of(schema), *([data] if packed else [])

    dtypes = (np.int32, np.int64, np.int64, np.int64, *([bytes] if packed else []))
    files, starts, lengths, labels, *unpacked = collect(records(split, paths), extract, dtypes, store)
    return Slices(paths=paths, files=files, starts=starts, lengths=lengths, unpacked=next(iter(unpacked), None)), labels


def pixels(split: str, paths: Sequence[str], schema: ImageSchema, store: Store) -> tuple[np.ndarray, np.ndarray]:
    """Images of a split that are stored as their pixels, uint8 [N, height, width, channels], and their classes [N].

    Raises:
      UserError: If a file is damaged, or a record has no image of that shape or no class.
    """

    def extract(record: Record) -> tuple[bytes, int]:
        data = record.needed(schema.image, "string")
        if len(data) != math.prod(schema.shape):
            due = f"not the {math.prod(schema.shape):,} of {' x '.join(map(str, schema.shape))}"
            raise record.error(f"{schema.image} holds {len(data):,} bytes, {due}")
        return data, record.class_of(schema)

    images, labels = collect(records(split, paths), extract, (bytes, np.int64), store)
    return images.data.reshape(-1, *schema.shape), labels
