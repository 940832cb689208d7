"""What TFRecord files hold, as a source: images, or rows of a table, with what is to be predicted.

    source = read(schema, {"train": ["train-00000-of-00002", "train-00001-of-00002"]}, store)

Records are taken in the order of the files.
"""

import io
import math
from collections.abc import Mapping, Sequence
from typing import IO

import numpy as np

from components.convert.images.encodings import arrange
from components.convert.images.pixels import Pictures, image_source
from components.convert.source import Source
from components.convert.sources.examples.parser import Record, collect, describe_value, packed, place, records
from components.convert.tables.schema import ImageSchema, Schema
from components.convert.writing.column_store import Store
from components.convert.writing.label_feature import label_feature
from trainer.base.errors import UserError, unknown
from trainer.base.framing import HEADER_BYTES


def describe(path: str) -> str:
    """The features of the first record of a file, in words."""
    features = _first([path]).features
    return ", ".join(f"{key} ({describe_value(feature)})" for key, feature in sorted(features.items()))


def read(
    schema: Schema | ImageSchema,
    splits: Mapping[str, Sequence[str]],
    store: Store,
    *,
    size: tuple[int, int] | None = None,
    encoding: str | None = None,
) -> Source:
    """Reads tables and pixels, or finds image files, for which `arrange` takes size and encoding.

    Splits are the paths of the files of `train`, and of others that are given.

    Raises:
      UserError: If a file is damaged, or a record is not what the schema says.
    """
    if (size or encoding) and (isinstance(schema, Schema) or schema.shape):
        raise UserError(f"dataset {schema.name!r} has no image files; leave out --image-size and --encoding")
    if isinstance(schema, Schema):
        return _table(schema, splits, store)
    keys = {schema.image, schema.label, *(place(key)[0] for key in schema.targets.values())}
    if others := sorted(set(_first(splits["train"]).features) - keys):
        print(f"left out of the records: {', '.join(others)}", flush=True)

    common = {"name": schema.name, "origin": schema.origin, "class_names": schema.classes}
    common |= {"task": schema.task, "targets": tuple(schema.targets), "arguments": {"schema": schema.content}}
    look = _pixels if schema.shape else _encoded
    found = {split: look(split, paths, schema, store) for split, paths in splits.items()}
    if schema.shape is None:
        return arrange(found, store, size=size, encoding=encoding, **common)
    columns = {split: {"image": images, "label": labels} for split, (images, labels) in found.items()}
    return image_source(columns, **common)


def _encoded(split: str, paths: Sequence[str], schema: ImageSchema, store: Store) -> tuple[Pictures, np.ndarray]:
    """Where the image files of a split are, and their labels."""
    keep = any(map(packed, paths))  # what is unpacked, for it cannot be sought in the file

    def extract(record: Record) -> tuple:
        data = record.needed(schema.image, "string")
        start = record.start + HEADER_BYTES + record.payload.find(data)
        return record.file, start, len(data), *([data] if keep else []), *record.label(schema)

    files, starts, lengths, *columns = collect(records(split, paths), extract, store)
    unpacked, labels = (columns[0], columns[1:]) if keep else (None, columns)

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


def _pixels(split: str, paths: Sequence[str], schema: ImageSchema, store: Store) -> tuple[np.ndarray, np.ndarray]:
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


def _table(schema: Schema, splits: Mapping[str, Sequence[str]], store: Store) -> Source:
    from components.convert.sources.examples import example_columns
    from components.convert.tables import rows

    if schema.delimiter:
        raise UserError(f"dataset {schema.name!r} is no CSV files; leave delimiter out of its schema")
    blocks = {split: example_columns.blocks(records(split, paths), schema) for split, paths in splits.items()}
    source = rows.read(blocks, schema, store)
    for name, missing in source.missing["train"].items():
        if missing.all():  # perhaps because the schema misspells its key
            key, first = place(schema.columns[name].header)[0], _first(splits["train"])
            if key not in first.features:
                raise UserError(f"no record for training has {unknown('feature', key, first.features)}")
    return source


def _first(paths: Sequence[str]) -> Record:
    return next(records("train", paths))
