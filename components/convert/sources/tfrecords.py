"""TFRecord files that other programs wrote, each record a `tf.train.Example`: images, or rows of a table.

    source = TfrecordSource(schema="flowers.yaml")
    examples = source.open("downloads/flowers", opening)

Each file is a piece. Which split a file belongs to, its name says, or the names of its folders. A column's header is the key of its
feature; `sizes[2]` is the third value of the feature `sizes`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gzip
import io
import itertools
import math
import os
import pathlib
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from common.errors import UserError, readable, unknown
from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION
from common.storage.files import list_files, open_file
from common.storage.storage import File
from components.convert.records import FOOTER_BYTES, HEADER_BYTES, checksums
from components.convert.source import Examples, Opening, Paths, Piece, Source, image_feature, print_left_out
from components.convert.sources import images
from components.convert.splits import NAMES

if TYPE_CHECKING:  # Slow to import, and most datasets have none.
    from components.convert.schema import ImageSchema, TableSchema

_SPLITS = {**NAMES, "eval": "test", "evaluation": "test"}
_MARK = ".tfrec"  # In the names of most such files, whatever follows.
_HEADER = struct.Struct("<QI")
_MAX_BYTES = (1 << 31) - 1  # Of a payload: no protobuf message has more.
_GZIP = b"\x1f\x8b\x08"
_FIRST_BYTES = 1 << 16  # That the first record is likely to have at most.
_ROWS, _ROWS_BYTES = 1 << 14, 1 << 22  # Records that are held together, and their bytes.
_LISTS = {"int": "int64_list", "float": "float_list", "string": "bytes_list"}
_NOTHING = "no value"
_ELEMENT = re.compile(r"(?P<key>.+)\[(?P<index>[0-9]+)\]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfrecordSource(Source):
    """TFRecord files; the schema is of a table or of images."""

    name: str = "tfrecord"
    takes = frozenset({"schema", "image_size", "encoding"})
    schema: str | None = None
    image_size: tuple[int, int] | None = None
    encoding: str | None = None

    def files(self, paths: Paths) -> list[File]:
        """Returns the files; without a schema, an error says what the first record holds."""
        return self._list_files(paths, print_others=False)

    def open(self, paths: Paths, opening: Opening) -> Examples:
        """Prints what the first record lacks of the schema, or has besides."""
        from components.convert.schema import load

        files = self._list_files(paths, print_others=True)
        schema = load(self.schema)
        splits = _split_files(files)
        return open_records(schema, splits, opening, size=self.image_size, encoding=self.encoding)

    def _list_files(self, paths: Paths, *, print_others: bool) -> list[File]:
        inside = functools.partial(_list_inside, print_others=print_others)
        files = self.locate_files(paths, "FILE..., its TFRecord files or a directory of them", inside)
        if self.schema is None:
            features = _first_record(files).features
            listed = ", ".join(f"{key} ({_describe(feature)})" for key, feature in sorted(features.items()))
            raise UserError(
                f"dataset {self.name!r} needs --schema FILE, which says what the features are; the first record of "
                f"{files[0].path} has {listed}"
            )
        return files


def open_records(
    schema: TableSchema | ImageSchema,
    splits: Mapping[str, Sequence[File]],
    opening: Opening,
    *,
    size: tuple[int, int] | None = None,
    encoding: str | None = None,
) -> Examples:
    """Returns what TFRecord files hold.

    Args:
      schema: Of a table or of images.
      splits: Files by split, `train` among them.
      opening: As of `Source.open`.
      size: Height and width that a model gets of image files.
      encoding: How these are stored, `raw` or `source`.

    Raises:
      UserError: If there are no records, or they are not what the schema says.
    """
    from components.convert.schema import TableSchema

    is_table = isinstance(schema, TableSchema)
    if (size or encoding) and (is_table or schema.shape):
        raise UserError(f"dataset {schema.name!r} has no image files; leave out --image-size and --encoding")
    features = _first_record(splits["train"]).features
    if is_table:
        if schema.delimiter:
            raise UserError(f"dataset {schema.name!r} is no CSV files; leave delimiter out of its schema")
        return _open_table(schema, splits, opening, features)
    keys = {schema.image, schema.label, *(_parse_key(key)[0] for key in schema.targets.values())}
    if others := sorted(set(features) - keys):
        print(f"left out of the records: {', '.join(others)}", flush=True)
    files = [file for of_split in splits.values() for file in of_split]
    pieces = [(split, file) for split, of_split in splits.items() for file in of_split]
    examples = RecordImages(
        name=schema.name,
        origin=schema.origin,
        pieces=tuple(Piece(split=s, part=i, num_bytes=file.num_bytes) for i, (s, file) in enumerate(pieces)),
        inputs=(image_feature(schema.shape),) if schema.shape else (),
        task=schema.task,
        class_names=schema.classes,
        targets=tuple(schema.targets),
        arguments={"schema": schema.content},
        schema=schema,
        files=tuple(files),
    )
    return examples if schema.shape else examples.choose_storage(opening, size, encoding)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordImages(images.ImageExamples):
    """Images in records: files, or pixels as they are stored. The `part` of a piece is the number of its file."""

    schema: ImageSchema
    files: tuple[File, ...]

    def pictures(self, piece: Piece, *, heads_only: bool = False) -> Iterator[images.Picture]:
        """Yields the images of a file."""
        for record in read_records(self.files[piece.part]):
            data = record.needed(self.schema.image, "string")
            yield images.Picture(origin=record.place, content=io.BytesIO(data), label=record.label(self.schema))

    def decode(self, data: bytes, place: str) -> np.ndarray:
        """Returns what is stored of an image."""
        shape = self.schema.shape
        if not shape:
            return super().decode(data, place)
        if len(data) != math.prod(shape):
            expected = f"not the {math.prod(shape):,} of {' x '.join(map(str, shape))}"
            raise UserError(f"{place}: {self.schema.image} holds {len(data):,} bytes, {expected}")
        return np.frombuffer(data, np.uint8).reshape(shape)


def _open_table(
    schema: TableSchema, splits: Mapping[str, Sequence[File]], opening: Opening, first: Mapping[str, Any]
) -> Examples:
    """Writes the wanted features of each file to a Parquet file, and opens these."""
    from components.convert.sources import tables

    for column in schema.columns.values():
        key = _parse_key(column.header)[0]
        if key not in first:
            print(f"the first record has no value of {column.name}: {unknown('feature', key, first)}", flush=True)
    files = {
        f"{opening.directory}/{split}-{i}.parquet": file for split in splits for i, file in enumerate(splits[split])
    }
    opening.map(lambda path: _write_parquet(schema, files[path], path), [*files])
    staged = {
        split: [(f"{opening.directory}/{split}-{i}.parquet", {}) for i in range(len(splits[split]))] for split in splits
    }

    def describe_row(path: str, row: int) -> str:
        return next(itertools.islice(read_records(files[path]), row, None)).place

    return tables.open_typed(schema, staged, opening, describe_row)


def _write_parquet(schema: TableSchema, file: File, path: str) -> None:
    """Writes the features that are columns, null where a record has no value; their names are the headers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"int": pa.int64(), "float": pa.float32()}
    fields = pa.schema([(c.header, types.get(c.type, pa.binary())) for c in schema.columns.values()])
    keys = {_parse_key(column.header)[0] for column in schema.columns.values()}
    with pq.ParquetWriter(path, fields) as writer:
        for group in _groups(read_records(file)):
            for record in group:
                others = sorted(set(record.features) - keys)
                if others and not schema.ignore_others:
                    what = unknown("feature", others[0], keys)
                    raise record.error(f"{what}; add it to the schema, or 'other_columns: ignore'")
            columns = []
            for column, field in zip(schema.columns.values(), fields, strict=True):
                kind = column.type if column.type in types else "string"
                values = [record.value(*_parse_key(column.header), kind) for record in group]
                columns.append(pa.array(values, field.type))
            writer.write_batch(pa.record_batch(columns, schema=fields))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """A record.

    Attributes:
      place: Says where it is.
      num_bytes: Bytes of the payload.
      features: Its values, as `tf.train.Feature`, by key.
    """

    place: str
    num_bytes: int
    features: Mapping[str, Any]

    def error(self, message: str) -> UserError:
        """Returns an error that names the record."""
        return UserError(f"{self.place}: {message}")

    def value(self, key: str, index: int | None, kind: str) -> Any:
        """Returns the only value of a feature, or the one at an index; None if there is no value.

        Its kind has to be `int`, `float` or `string`, which is bytes; anything else is a `UserError`.
        """
        feature = self.features.get(key)
        if feature is None:
            return None
        values = getattr(feature, _LISTS[kind]).value
        if len(values) == 1 and not index:
            return values[0]
        if values and index is not None and index < len(values):
            return values[index]
        content = _describe(feature)
        if content == _NOTHING:
            return None
        wanted = f"not one {_LISTS[kind].removesuffix('_list')}" if index is None else f"none at [{index}]"
        raise self.error(f"{key} holds {content}, {wanted}")

    def needed(self, header: str, kind: str) -> Any:
        """Returns what `value` does; that there is none is an error too."""
        key, index = _parse_key(header)
        value = self.value(key, index, kind)
        if value is None:
            is_empty = key in self.features
            raise self.error(f"{key} holds {_NOTHING}" if is_empty else str(unknown("feature", key, self.features)))
        return value

    def label(self, schema: ImageSchema) -> tuple[int | float, ...]:
        """Returns the class of the example, or its targets; a `UserError` if there is none, or it is not allowed."""
        if schema.task == CLASSIFICATION:
            return (self._class(schema),)
        return tuple(self._target(key, schema.task) for key in schema.targets.values())

    def _target(self, header: str, task: str) -> int | float:
        key = _parse_key(header)[0]
        is_whole = key in self.features and self.features[key].HasField("int64_list")
        value = self.needed(header, "int" if is_whole or task == MULTI_LABEL else "float")
        if task == MULTI_LABEL and value not in (0, 1):
            raise self.error(f"{key} is {value}, neither 0 nor 1")
        if task == REGRESSION and not math.isfinite(value):
            raise self.error(f"{key} is {value}, no finite number")
        return value if task == MULTI_LABEL else float(value)

    def _class(self, schema: ImageSchema) -> int:
        key, classes, first = schema.label, schema.classes, schema.first_label
        if key in self.features and self.features[key].HasField("bytes_list"):
            name = self.needed(key, "string").decode(errors="backslashreplace")
            if name not in classes:
                raise self.error(f"{key}: {unknown('class', name, classes)}")
            return classes.index(name)
        label = self.needed(key, "int") - first
        if not 0 <= label < len(classes):
            raise self.error(f"{key} is {label + first}, no class of {first} to {first + len(classes) - 1}")
        return label


def _parse_key(header: str) -> tuple[str, int | None]:
    """Returns the key of a feature, and which of its values is meant, `sizes[2]` the third one; None of the only one."""
    element = _ELEMENT.fullmatch(header)
    return (element["key"], int(element["index"])) if element else (header, None)


def _describe(feature: Any) -> str:
    """Returns what a `tf.train.Feature` holds, in words."""
    kind = feature.WhichOneof("kind")
    values = getattr(feature, kind).value if kind else ()
    if kind == "bytes_list" and len(values) == 1:
        return f"{len(values[0]):,} bytes"
    return f"{len(values):,} {kind.removesuffix('_list')} value{'s' * (len(values) > 1)}" if values else _NOTHING


def read_records(file: File, stop: int | None = None) -> Iterator[Record]:
    """Yields the records of a file, plain or packed with gzip; `stop` is up to where it is read ahead.

    Raises:
      UserError: If the file is damaged, or a record is no `tf.train.Example` with features.
    """
    from google.protobuf.message import DecodeError
    from tensorflow_datasets.proto import tf_example_pb2

    for start, payload in _payloads(file, stop):
        try:
            features = tf_example_pb2.Example.FromString(payload).features.feature
        except DecodeError:
            features = {}
        record = Record(place=f"{file.path}: record at byte {start:,}", num_bytes=len(payload), features=features)
        if not features:
            raise record.error("is no tf.train.Example with features")
        yield record


def _payloads(file: File, stop: int | None) -> Iterator[tuple[int, bytes]]:
    """Yields the first byte, in the unpacked file, and the payload of each record."""
    start = 0
    with _unpacked(file, stop) as data:
        while head := data.read(HEADER_BYTES):
            if not _is_header(head) or _HEADER.unpack(head)[0] > _MAX_BYTES:
                what = "damaged, or no TFRecord file (plain, or packed with gzip)"
                raise UserError(f"{file.path}: {what}: wrong length of the record at byte {start:,}")
            payload = data.read(_HEADER.unpack(head)[0])
            if data.read(FOOTER_BYTES) != checksums([payload], 1).tobytes():
                raise UserError(f"{file.path}: damaged: wrong checksum of the record at byte {start:,}")
            yield start, payload
            start += HEADER_BYTES + len(payload) + FOOTER_BYTES


@contextlib.contextmanager
def _unpacked(file: File, stop: int | None) -> Iterator[IO[bytes]]:
    try:
        with readable(file.path), open_file(file, stop=stop) as raw:
            head = raw.peek(HEADER_BYTES)[:HEADER_BYTES]
            is_packed = head.startswith(_GZIP) and not _is_header(head)  # The first length may begin with these bytes.
            with gzip.open(raw) if is_packed else raw as data:
                yield data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{file.path}: damaged: {error}") from None


@functools.lru_cache  # Lengths repeat.
def _is_header(head: bytes) -> bool:
    return len(head) == HEADER_BYTES and head[8:] == checksums([head[:8]], 1).tobytes()


def _groups(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Yields neighbouring records, as many as may be held together."""
    group, num_bytes = [], 0
    for record in records:
        group.append(record)
        num_bytes += record.num_bytes
        if len(group) == _ROWS or num_bytes > _ROWS_BYTES:
            yield group
            group, num_bytes = [], 0
    if group:
        yield group


def _first_record(files: Sequence[File]) -> Record:
    for file in files:
        for record in read_records(file, min(file.num_bytes, _FIRST_BYTES)):
            return record
    raise UserError(f"{files[0].path}{f' and {len(files) - 1} more' * (len(files) > 1)}: no records")


def _list_inside(folder: str, *, print_others: bool) -> list[File]:
    """Returns the files in a folder and its folders; hidden ones and those that only mark success are passed over."""
    names = {file.path[len(folder) :].strip("/"): file for file in list_files(folder)}
    visible = {
        name: file
        for name, file in names.items()
        if not file.is_special and not any(part.startswith((".", "_")) for part in name.split("/"))
    }
    if not visible:
        raise UserError(f"{folder}: holds no files")
    marked = {name: file for name, file in visible.items() if _MARK in os.path.basename(name)}
    if marked and print_others:
        print_left_out(folder, sorted(visible.keys() - marked.keys()), f"other names have {_MARK}")
    return [file for _, file in sorted((marked or visible).items(), key=lambda item: item[0].split("/"))]


def _split_files(files: Sequence[File]) -> dict[str, list[File]]:
    """Returns the files by split: what their name says, else what their folders' do, or all as `train` if nobody's does."""
    root = os.path.commonpath([os.path.dirname(os.path.abspath(file.path)) for file in files])
    named = {}
    for file in files:
        parts = pathlib.Path(os.path.relpath(file.path, root)).parts
        named[file] = next(filter(None, map(_split_in, reversed(parts))), None)
    if not any(named.values()):
        return {"train": list(files)}
    one = next(file for file, split in named.items() if split)
    if silent := [file.path for file, split in named.items() if not split]:
        raise UserError(
            f"{silent[0]}: its name says no split, and that of {one.path} does ({named[one]}); rename it, or give --source "
            "the files to take"
        )
    if "train" not in named.values():
        raise UserError(
            f"{one.path}: is for {named[one]} by its name, and no file is for train; rename it, or add others"
        )
    return {
        split: [file for file in files if named[file] == split]
        for split in ("train", "validation", "test")
        if split in named.values()
    }


def _split_in(name: str) -> str | None:
    """Returns the split that a name has in it."""
    splits = {_SPLITS[word] for word in re.findall("[a-z]+", name.lower()) if word in _SPLITS}
    if len(splits) > 1:
        raise UserError(f"{name}: its name says {' and '.join(sorted(splits))}; rename it")
    return next(iter(splits), None)
