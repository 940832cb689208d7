"""What TFRecord files hold, as a source: images, or rows of a table, with what is to be predicted.

    cut = cut(schema, {"train": listed("downloads/flowers")})
    source = source(schema, cut)

Records are taken in the order of the files.
"""

import dataclasses
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from common.errors import UserError, unknown
from common.storage.storage import File
from components.convert import pieces
from components.convert.images.encodings import ImageSource, Picture
from components.convert.images.pixels import image_feature
from components.convert.sources.examples import record_files
from components.convert.sources.examples.parser import Record, describe_value, place, records
from components.convert.tables.schema import ImageSchema, Schema

_FIRST_BYTES = 1 << 16  # that a record is likely to have at most


def describe(file: File) -> str:
    """The features of the first record of a file, in words."""
    features = _first(record_files.cut({"train": [file]}), "train", [file]).features
    return ", ".join(f"{key} ({describe_value(feature)})" for key, feature in sorted(features.items()))


def cut(schema: Schema | ImageSchema, splits: Mapping[str, Sequence[File]]) -> pieces.Cut:
    """Cuts the files of `train`, and of others that are given, and tells what the first record has not, or has besides."""
    found = record_files.cut(splits)
    features = {split: _first(found, split, files).features for split, files in splits.items()}["train"]
    if isinstance(schema, Schema):
        if schema.delimiter:
            raise UserError(f"dataset {schema.name!r} is no CSV files; leave delimiter out of its schema")
        for column in schema.columns.values():
            if (key := place(column.header)[0]) not in features and not column.required:
                print(
                    f"the first record has no value of {column.name}: {unknown('feature', key, features)}", flush=True
                )
    else:
        keys = {schema.image, schema.label, *(place(key)[0] for key in schema.targets.values())}
        if others := sorted(set(features) - keys):
            print(f"left out of the records: {', '.join(others)}", flush=True)
    return found


def source(
    schema: Schema | ImageSchema,
    cut: pieces.Cut,
    *,
    size: tuple[int, int] | None = None,
    encoding: str | None = None,
) -> pieces.Source:
    """The table, the pixels, or the image files, for which alone there are size and encoding, as an `ImageSource` takes them."""
    if (size or encoding) and (isinstance(schema, Schema) or schema.shape):
        raise UserError(f"dataset {schema.name!r} has no image files; leave out --image-size and --encoding")
    if isinstance(schema, Schema):
        from components.convert.sources.examples.example_columns import RecordTable  # images do without Arrow

        return RecordTable.of(schema, cut=cut)
    images = RecordImages(
        name=schema.name,
        origin=schema.origin,
        task=schema.task,
        class_names=schema.classes,
        targets=tuple(schema.targets),
        arguments={"schema": schema.content},
        size=size,
        encoding=encoding,
        schema=schema,
        cut=cut,
    )
    return dataclasses.replace(images, inputs=(image_feature(schema.shape),), looks=False) if schema.shape else images


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordImages(ImageSource):
    """Images in records: files, or pixels as they are stored."""

    schema: ImageSchema
    cut: pieces.Cut

    def pictures(self, piece: pieces.Piece, *, heads: bool) -> Iterator[Picture]:
        """The images of a piece."""
        for record in records(self.cut, piece):
            data = record.needed(self.schema.image, "string")
            yield Picture(
                position=record.position,
                place=record.place,
                num_bytes=len(data),
                content=io.BytesIO(data),
                label=record.label(self.schema),
            )

    def image(self, data: bytes, place: str) -> tuple[Any, ...]:
        """What is stored of an image."""
        if not (shape := self.schema.shape):
            return super().image(data, place)
        if len(data) != math.prod(shape):
            due = f"not the {math.prod(shape):,} of {' x '.join(map(str, shape))}"
            raise UserError(f"{place}: {self.schema.image} holds {len(data):,} bytes, {due}")
        return (np.frombuffer(data, np.uint8).reshape(shape),)


def _first(cut: pieces.Cut, split: str, files: Sequence[File]) -> Record:
    """The first record of a split, of which the files are given."""
    for piece in cut.pieces:
        part = dataclasses.replace(
            piece, stop=min(piece.stop, piece.start + _FIRST_BYTES)
        )  # no more is fetched at once
        if piece.split == split and (record := next(records(cut, part), None)):
            return record
    raise UserError(f"{files[0].path}{f' and {len(files) - 1} more' * (len(files) > 1)}: no records")
