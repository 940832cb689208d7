"""Images in the records of TFRecord files: where they lie there, if they are PNG or JPEG files, or their pixels.

pictures, labels = encoded("train", paths, schema, store)
pictures.open(0).read()     # the first file

A `UserError` names the record that has no image or no class of the schema.
"""

import io
import math
from collections.abc import Sequence
from typing import IO

import numpy as np

from components.convert.images.pixels import Pictures
from components.convert.sources.examples.parser import Record, any_packed, collect, records
from components.convert.tables.schema import ImageSchema
from components.convert.writing.column_store import Store
from trainer.base.framing import HEADER_BYTES


def encoded(split: str, paths: Sequence[str], schema: ImageSchema, store: Store) -> tuple[Pictures, np.ndarray]:
    """Where the image files of a split are, and their classes [N]."""
    packed = any_packed(paths)

    def extract(record: Record) -> tuple:
        data = record.needed(schema.image, "string")
        start = record.start + HEADER_BYTES + record.payload.find(data)
        return record.file, start, len(data), record.class_of(schema), *([data] if packed else [])

    files, starts, lengths, labels, *unpacked = collect(records(split, paths), extract, store)

    def content(i: int) -> IO[bytes]:
        if unpacked:
            start, end = unpacked[0].offsets[i : i + 2]
            return io.BytesIO(unpacked[0].data[start:end])
        with open(paths[files[i]], "rb") as file:
            file.seek(starts[i])
            return io.BytesIO(file.read(lengths[i]))

    def place(i: int) -> str:
        return f"{paths[files[i]]}: image at byte {starts[i]:,}"

    return Pictures(lengths=lengths, place=place, open=content), labels


def pixels(split: str, paths: Sequence[str], schema: ImageSchema, store: Store) -> tuple[np.ndarray, np.ndarray]:
    """Images of a split that are stored as their pixels, uint8 [N, height, width, channels], and their classes [N]."""

    def extract(record: Record) -> tuple[bytes, int]:
        data = record.needed(schema.image, "string")
        if len(data) != math.prod(schema.shape):
            due = f"not the {math.prod(schema.shape):,} of {' x '.join(map(str, schema.shape))}"
            raise record.error(f"{schema.image} holds {len(data):,} bytes, {due}")
        return data, record.class_of(schema)

    images, labels = collect(records(split, paths), extract, store)
    return images.data.reshape(-1, *schema.shape), labels
