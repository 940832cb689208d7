"""Images in the records of TFRecord files: where they lie there, if they are PNG or JPEG files, or their pixels.

pictures, labels = encoded("train", paths, "image", lambda record: record.class_of("label", ("cat", "dog")), store)
pictures.open(0).read()     # the first file
"""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Callable, Sequence
from typing import IO

import numpy as np

from components.convert.sources.examples.parser import Record, any_packed, collect, records
from components.convert.writing.byte_strings import Strings
from components.convert.writing.column_store import Store
from trainer.base.framing import HEADER_BYTES

ClassOf = Callable[[Record], int]


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


def encoded(what: str, paths: Sequence[str], image: str, class_of: ClassOf, store: Store) -> tuple[Slices, np.ndarray]:
    """Where the image files are, and their classes [N].

    Args:
      what: For those who see how far it has come.
      paths: Of the TFRecord files.
      image: Key of the feature that is an image file.
      class_of: The class of an example.
      store: Where columns are kept.

    Raises:
      UserError: If a file is damaged, or a record has no image or no class.
    """
    packed = any_packed(paths)

    def extract(record: Record) -> tuple:
        data = record.needed(image, "string")
        start = record.start + HEADER_BYTES + record.payload.find(data)
        return record.file, start, len(data), class_of(record), *([data] if packed else [])

    dtypes = (np.int32, np.int64, np.int64, np.int64, *([bytes] if packed else []))
    files, starts, lengths, labels, *unpacked = collect(records(what, paths), extract, dtypes, store)
    return Slices(paths=paths, files=files, starts=starts, lengths=lengths, unpacked=next(iter(unpacked), None)), labels


def pixels(
    what: str, paths: Sequence[str], image: str, shape: tuple[int, int, int], class_of: ClassOf, store: Store
) -> tuple[np.ndarray, np.ndarray]:
    """Images that are stored as their pixels, uint8 [N, *shape], and their classes [N].

    Args:
      what: For those who see how far it has come.
      paths: Of the TFRecord files.
      image: Key of the feature that is an image's bytes.
      shape: Height, width and channels.
      class_of: The class of an example.
      store: Where columns are kept.

    Raises:
      UserError: If a file is damaged, or a record has no image of that shape or no class.
    """

    def extract(record: Record) -> tuple[bytes, int]:
        data = record.needed(image, "string")
        if len(data) != math.prod(shape):
            shown = " x ".join(map(str, shape))
            raise record.error(f"{image} holds {len(data):,} bytes, not the {math.prod(shape):,} of {shown}")
        return data, class_of(record)

    images, labels = collect(records(what, paths), extract, (bytes, np.int64), store)
    return images.data.reshape(-1, *shape), labels
