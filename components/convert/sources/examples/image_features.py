"""Images in the records of TFRecord files: where they lie there, if they are PNG or JPEG files, or their pixels.

pictures, labels = encoded("train", paths, schema, store)
pictures.open(0).read()     # the first file

A `UserError` names the record that has no image or no label of the schema.
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
from components.convert.writing.label_feature import label_feature
from trainer.base.framing import HEADER_BYTES


def encoded(split: str, paths: Sequence[str], schema: ImageSchema, store: Store) -> tuple[Pictures, np.ndarray]:
    """Where the image files of a split are, and their labels."""
    packed = any_packed(paths)

    def extract(record: Record) -> tuple:
        data = record.needed(schema.image, "string")
        start = record.start + HEADER_BYTES + record.payload.find(data)
        return record.file, start, len(data), *([data] if packed else []), *record.label(schema)

    files, starts, lengths, *columns = collect(records(split, paths), extract, store)
    unpacked, labels = (columns[0], columns[1:]) if packed else (None, columns)

    def content(i: int) -> IO[bytes]:
        if unpacked is not None:
            start, end = unpacked.offsets[i : i + 2]
            return io.BytesIO(unpacked.data[start:end])
        with open(paths[files[i]], "rb") as file:
            file.seek(starts[i])
            return io.BytesIO(file.read(lengths[i]))

    def place(i: int) -> str:
        return f"{paths[files[i]]}: image at byte {starts[i]:,}"

    return Pictures(lengths=lengths, place=place, open=content), _labels(labels, schema)


def pixels(split: str, paths: Sequence[str], schema: ImageSchema, store: Store) -> tuple[np.ndarray, np.ndarray]:
    """Images of a split that are stored as their pixels, uint8 [N, height, width, channels], and their labels."""

    def extract(record: Record) -> tuple:
        data = record.needed(schema.image, "string")
        if len(data) != math.prod(schema.shape):
            due = f"not the {math.prod(schema.shape):,} of {' x '.join(map(str, schema.shape))}"
            raise record.error(f"{schema.image} holds {len(data):,} bytes, {due}")
        return data, *record.label(schema)

    images, *labels = collect(records(split, paths), extract, store)
    return images.data.reshape(-1, *schema.shape), _labels(labels, schema)


def _labels(columns: Sequence[np.ndarray], schema: ImageSchema) -> np.ndarray:
    """The labels, [N] or [N, k] as the task has it, of columns [N]."""
    shape = label_feature(schema.task, len(schema.classes or schema.targets)).shape
    return np.stack(columns, axis=1) if shape else columns[0]
