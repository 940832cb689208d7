"""TFRecord files of other programs: records of `tf.train.Example` with images.

    source = TfrecordSource(schema="flowers.yaml")
    examples = source.open("downloads/flowers", opening)

The name of a file, or else those of its folders, says to which split it belongs. A target may be
one of several values: `sizes[2]` is the third one of the feature `sizes`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from common.errors import UserError, unknown
from common.manifest import MULTI_LABEL
from common.storage.storage import File
from components.convert.records import FOOTER_BYTES, HEADER_BYTES, checksums
from components.convert.source import (
    Examples,
    Opening,
    Paths,
    Piece,
    Source,
    image_feature,
    relative_names,
)
from components.convert.sources.images import ImageExamples, Picture
from components.convert.sources.unpacking import unpacked
from components.convert.splits import NAMES, SPLITS

if TYPE_CHECKING:  # Slow to import, and most datasets have none.
    from components.convert.schema import ImageSchema

_SPLITS = {**NAMES, "eval": "test", "evaluation": "test"}
# If a folder has files with `.tfrec` in their names, as is usual, all others are something else.
_PATTERNS = {
    "*.tfrec* files": re.compile(r"(?s)(.*/)?[^/]*\.tfrec[^/]*"),
    "files": re.compile("(?s).*"),
}
_MAX_BYTES = 1 << 31  # Protobuf messages are smaller.
_FIRST_BYTES = 65_536  # Bytes that are fetched at once if only the first record is needed.
_HEADER = re.compile(r"(?s)(.+?)(?:\[([0-9]+)\])?\Z")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfrecordSource(Source):
    """TFRecord files, with the schema file of their images.

    Attributes:
      schema: Path of the schema file.
      image_size: Height and width that a model gets; None to choose them by the images.
      encoding: `raw` to store pixels, `source` to store image files; None to choose by size.
    """

    name: str = "tfrecord"
    takes = frozenset({"schema", "image_size", "encoding"})
    schema: str | None = None
    image_size: tuple[int, int] | None = None
    encoding: str | None = None

    def files(self, paths: Paths) -> list[File]:
        """Returns the files, in order, and prints what is left out of a folder.

        Raises:
          UserError: If a path has no files, a file is given twice, or there is no schema. In that
            case, the message lists what the first record holds.
        """
        wanted = "FILE..., its TFRecord files or a directory of them"
        files = self.locate_files(paths, wanted, _PATTERNS)
        if self.schema is None:
            first = _first_record(files)
            listed = ", ".join(
                f"{key} ({kind}[{len(values)}])"
                for key, (kind, values) in sorted(first.features.items())
            )
            raise UserError(
                f"dataset {self.name!r} needs --schema FILE, which says what the features are; the "
                f"first record of {first.path} has {listed}"
            )
        return files

    def open(self, paths: Paths, opening: Opening) -> Examples:
        """Finds the split of each file.

        Raises:
          UserError: If the names of the files do not say clearly which splits they are for, there
            are no files or no schema, or the records are not what the schema says.
        """
        splits = _split_files(self.files(paths))
        return self.open_records(splits, self.load_schema(), opening)

    def load_schema(self) -> Any:
        """Returns the `ImageSchema` of the file; None without one."""
        from components.convert.schema import ImageSchema

        return ImageSchema.load(self.schema) if self.schema else None

    def open_records(
        self, splits: Mapping[str, Sequence[File]], schema: ImageSchema, opening: Opening
    ) -> Examples:
        """Opens the files of each split, and prints which features are left out.

        Raises:
          UserError: If there are no records for training, the records are not what the schema says,
            or `image_size` or `encoding` is given and there are no image files.
        """
        if (self.image_size or self.encoding) and schema.shape:
            raise UserError(
                f"dataset {self.name!r} has no image files; leave out --image-size and --encoding"
            )
        if "train" not in splits:
            raise UserError(
                f"dataset {self.name!r} needs files for train; by their names, it has some for "
                f"{', '.join(splits) or 'no split'}"
            )
        keys = {
            _parse_header(header)[0]
            for header in (schema.image, schema.label, *schema.targets.values())
            if header
        }
        if others := sorted(_first_record(splits["train"]).features.keys() - keys):
            print(f"left out of the records: {', '.join(others)}")
        files = [(split, file) for split in SPLITS for file in splits.get(split, ())]
        examples = RecordImages(
            name=schema.name,
            origin=schema.origin,
            pieces=tuple(
                Piece(split=s, part=i, num_bytes=f.num_bytes) for i, (s, f) in enumerate(files)
            ),
            inputs=(image_feature(schema.shape),) if schema.shape else (),
            task=schema.task,
            class_names=schema.classes,
            targets=tuple(schema.targets),
            arguments={"schema": schema.content},
            schema=schema,
            files=tuple(file for _, file in files),
        )
        if schema.shape:
            return examples
        return examples.choose_storage(opening, self.image_size, self.encoding)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordImages(ImageExamples):
    """Images in records: files or pixels. A piece's `part` is the position of a file in `files`."""

    schema: ImageSchema
    files: tuple[File, ...]

    def pictures(self, piece: Piece, *, heads_only: bool = False) -> Iterator[Picture]:
        """Yields the images of a piece. Whole records are read, even if only heads are needed.

        Raises:
          UserError: If the file is damaged, or a record is not what the schema says.
        """
        for record in read_records(self.files[piece.part]):
            content = io.BytesIO(record.value(self.schema.image, "bytes"))
            yield Picture(origin=record.place, content=content, label=_label(record, self.schema))

    def decode(self, data: bytes, place: str) -> np.ndarray:
        """Returns the pixels of the schema's shape; without one, as `ImageExamples.decode` does.

        Raises:
          UserError: If the number of pixels is not that of the shape, or the image is broken.
        """
        shape = self.schema.shape
        if not shape:
            return super().decode(data, place)
        if len(data) != math.prod(shape):
            raise UserError(
                f"{place}: {self.schema.image} holds {len(data):,} bytes, not the "
                f"{math.prod(shape):,} of {' x '.join(map(str, shape))}"
            )
        return np.frombuffer(data, np.uint8).reshape(shape)


def _label(record: Record, schema: ImageSchema) -> tuple[int | float, ...]:
    """Returns an image's class or targets; a `UserError` if a value is missing or not allowed."""
    if schema.label:
        return (_class(record, schema),)
    return tuple(_target(record, header, schema.task) for header in schema.targets.values())


def _class(record: Record, schema: ImageSchema) -> int:
    value = record.value(schema.label or "", "int64", "bytes")
    allowed: Sequence[Any] = range(schema.label_offset, schema.label_offset + len(schema.classes))
    if isinstance(value, bytes):
        allowed, value = schema.classes, value.decode(errors="backslashreplace")
    if value not in allowed:
        raise record.error(f"{schema.label}: {unknown('class', str(value), map(str, allowed))}")
    return allowed.index(value)


def _target(record: Record, header: str, task: str) -> int | float:
    value = record.value(header, "float", "int64")
    if task == MULTI_LABEL and value not in (0, 1):
        raise record.error(f"{header} is {value}, neither 0 nor 1")
    if not math.isfinite(value):
        raise record.error(f"{header} is {value}, no finite number")
    return value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """A record.

    Attributes:
      path: Path of its file.
      start: Offset of its first byte in the file, after unpacking.
      features: By key, the kind of a feature, `int64`, `float` or `bytes`, and its values.
    """

    path: str
    start: int
    features: Mapping[str, tuple[str, Sequence[Any]]]

    @property
    def place(self) -> str:
        """Path of the file and offset of the record in bytes, for messages."""
        return f"{self.path}: record at byte {self.start:,}"

    def error(self, message: str) -> UserError:
        """Returns an error whose message begins with the place of the record."""
        return UserError(f"{self.place}: {message}")

    def value(self, header: str, *kinds: str) -> Any:
        """Returns the only value of a feature, or the one at an index.

        Args:
          header: Key of the feature, with an index for one of several values, as in `sizes[2]`.
          *kinds: Kinds that the feature may have.

        Raises:
          UserError: If the value is missing, not the only one, or of another kind.
        """
        key, index = _parse_header(header)
        kind, values = self.features.get(key, ("nothing", ()))
        chosen = values if index is None else values[index : index + 1]
        if kind in kinds and len(chosen) == 1:
            return chosen[0]
        expected = f"not one {' or '.join(kinds)}" if index is None else f"none at [{index}]"
        raise self.error(f"{key} holds {kind}[{len(values)}], {expected}")


@functools.cache
def _parse_header(header: str) -> tuple[str, int | None]:
    """Splits a header such as `sizes[2]` into a key and an index, which is None without one."""
    key, index = _HEADER.findall(header)[0]
    return key, int(index) if index else None


def read_records(file: File, stop: int | None = None) -> Iterator[Record]:
    """Yields the records of a TFRecord file, plain or packed.

    Args:
      file: File as it was listed.
      stop: Offset up to which a file in a bucket is read ahead, by default its end. Records behind
        it are yielded too, but fetched only when they are read.

    Raises:
      UserError: If the file is damaged, or a record is no `tf.train.Example` with features.
    """
    start = 0
    with unpacked(file, stop) as data:
        while head := data.read(HEADER_BYTES):
            size = int.from_bytes(head[:8], "little")
            payload = data.read(size) if size < _MAX_BYTES else b""
            sums = head[8:] + data.read(FOOTER_BYTES)
            if sums != checksums([head[:8], payload], 2).tobytes():
                raise UserError(
                    f"{file.path}: damaged, or no TFRecord file: wrong length or checksum of the "
                    f"record at byte {start:,}"
                )
            record = Record(path=file.path, start=start, features=_parse(payload))
            if not record.features:
                raise record.error("is no tf.train.Example with features")
            yield record
            start += HEADER_BYTES + len(payload) + FOOTER_BYTES


def _parse(payload: bytes) -> dict[str, Any]:
    """Returns the features of a `tf.train.Example` by key; empty if it is something else."""
    from google.protobuf.message import DecodeError
    from tensorflow_datasets.proto import tf_example_pb2

    features = {}
    with contextlib.suppress(DecodeError):
        for key, feature in tf_example_pb2.Example.FromString(payload).features.feature.items():
            field = feature.WhichOneof("kind") or "bytes_list"
            features[key] = field.removesuffix("_list"), getattr(feature, field).value
    return features


def _first_record(files: Sequence[File]) -> Record:
    for file in files:
        for record in read_records(file, _FIRST_BYTES):
            return record
    raise UserError(f"{files[0].path}: no records, in all files together")


def _split_files(files: Sequence[File]) -> dict[str, list[File]]:
    """Returns the files by split; all as `train` if no name says a split.

    A `UserError` is raised if only some names say a split, or one says several.
    """
    splits: dict[str, list[File]] = {}
    unnamed = []
    for file, name in relative_names(files).items():
        # The innermost name that says a split decides.
        for part in reversed(name.split("/")):
            words = re.findall("[a-z]+", part.lower())
            named = sorted({_SPLITS[word] for word in words if word in _SPLITS})
            if len(named) > 1:
                raise UserError(f"{part}: its name says {' and '.join(named)}; rename it")
            if named:
                splits.setdefault(named[0], []).append(file)
                break
        else:
            unnamed.append(file)
    if unnamed and splits:
        split, named_files = min(splits.items())
        raise UserError(
            f"{unnamed[0].path}: its name says no split, and that of {named_files[0].path} does "
            f"({split}); rename it, or give --source the files to take"
        )
    return splits or {"train": unnamed}
