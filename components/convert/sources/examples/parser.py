"""Records of TFRecord files that others wrote, each a `tf.train.Example`, read without TensorFlow.

    for record in records("train", ["train-00000-of-00002", "train-00001-of-00002.gz"]):
        record.needed("image/class/label", "int")

Every record is compared with its checksums. Of a file that is packed with gzip or zlib, bytes are counted as they
are unpacked.
"""

import dataclasses
import functools
import io
import math
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from components.convert.tables.schema import ImageSchema
from components.convert.writing import progress
from components.convert.writing.byte_strings import Strings
from components.convert.writing.column_store import Store
from trainer.base.errors import UserError, readable, unknown
from trainer.base.framing import FOOTER_BYTES, HEADER_BYTES, checksums
from trainer.base.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION

_HEADER = struct.Struct("<QI")
_GZIP = b"\x1f\x8b\x08"
_GROUP, _GROUP_BYTES = 1 << 14, 1 << 22  # records that are held together, and their bytes
_STORED = {bytes: "string", int: np.int64, float: np.float32}
_LISTS = {"int": "int64_list", "float": "float_list", "string": "bytes_list"}
_NOTHING = "no value"
_ELEMENT = re.compile(r"(?P<key>.+)\[(?P<index>[0-9]+)\]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """A record and where it is.

    Attributes:
      file: Position of its file among those that are read.
      start: Of the record in the file, in bytes.
      features: Its values, as `tf.train.Feature`, by key.
    """

    path: str
    file: int
    start: int
    payload: bytes
    features: Mapping[str, Any]

    def error(self, message: str) -> UserError:
        """An error that names the record."""
        return UserError(f"{self.path}: record at byte {self.start:,}: {message}")

    def value(self, key: str, kind: str, index: int | None = None) -> Any:
        """The only value of a feature, or the one at an index; None if there is no value.

        Its kind is `int`, `float` or `string`, which is bytes.

        Raises:
          UserError: If values are of another kind, or of another number.
        """
        if (feature := self.features.get(key)) is None:
            return None
        values = getattr(feature, _LISTS[kind]).value
        if len(values) == 1 and not index:
            return values[0]
        if values and index is not None and index < len(values):
            return values[index]
        if (held := describe_value(feature)) == _NOTHING:
            return None
        wanted = f"not one {_LISTS[kind].removesuffix('_list')}" if index is None else f"none at [{index}]"
        raise self.error(f"{key} holds {held}, {wanted}")

    def needed(self, key: str, kind: str, index: int | None = None) -> Any:
        """What `value` gives; that there is none is an error too."""
        if (value := self.value(key, kind, index)) is None:
            raise self.lacks(key)
        return value

    def lacks(self, key: str) -> UserError:
        """An error that says so, and names the nearest feature."""
        there = key in self.features
        return self.error(f"{key} holds {_NOTHING}" if there else str(unknown("feature", key, self.features)))

    def label(self, schema: ImageSchema) -> tuple[int | float, ...]:
        """The class of the example, or its targets; a `UserError` if there is none, or it is not what it should be."""
        if schema.task == CLASSIFICATION:
            return (self._class_of(schema),)
        return tuple(self._target(*place(key), schema.task) for key in schema.targets.values())

    def _target(self, key: str, index: int | None, task: str) -> int | float:
        """A number, or of several labels whether one applies."""
        whole = key in self.features and self.features[key].HasField("int64_list")
        kind = "int" if whole or task == MULTI_LABEL else "float"
        value = self.needed(key, kind, index)
        if task == MULTI_LABEL and value not in (0, 1):
            raise self.error(f"{key} is {value}, neither 0 nor 1")
        if task == REGRESSION and not math.isfinite(value):
            raise self.error(f"{key} is {value}, no finite number")
        return value if task == MULTI_LABEL else float(value)

    def _class_of(self, schema: ImageSchema) -> int:
        """The class of the example, by its name or its number."""
        key, classes, first = schema.label, schema.classes, schema.first_label
        if key in self.features and self.features[key].HasField("bytes_list"):
            if (name := self.needed(key, "string").decode(errors="backslashreplace")) in classes:
                return classes.index(name)
            raise self.error(f"{key}: {unknown('class', name, classes)}")
        if 0 <= (label := self.needed(key, "int") - first) < len(classes):
            return label
        raise self.error(f"{key} is {label + first}, no class of {first} to {first + len(classes) - 1}")


def place(header: str) -> tuple[str, int | None]:
    """The key of a feature, and which of its values is meant, `sizes[2]` the third one; None of the only one."""
    element = _ELEMENT.fullmatch(header)
    return (element["key"], int(element["index"])) if element else (header, None)


def describe_value(feature: Any) -> str:
    """What a `tf.train.Feature` holds, in words."""
    held = feature.WhichOneof("kind")
    values = getattr(feature, held).value if held else ()
    if held == "bytes_list" and len(values) == 1:
        return f"{len(values[0]):,} bytes"
    return f"{len(values):,} {held.removesuffix('_list')} value{'s' * (len(values) > 1)}" if values else _NOTHING


def records(split: str, paths: Sequence[str]) -> Iterator[Record]:
    """All records of the files of a split, in order.

    Raises:
      UserError: If a file is missing, damaged, no TFRecord file, or has other records; if there is no record at all.
    """
    from google.protobuf.message import DecodeError
    from tensorflow_datasets.proto import tf_example_pb2

    record = None
    with progress.track(f"looking at {split}", sum(map(os.path.getsize, paths)), "bytes") as advance:
        for i, path in enumerate(paths):
            before = 0
            for start, payload, position in _payloads(path):
                try:
                    features = tf_example_pb2.Example.FromString(payload).features.feature
                except DecodeError:
                    features = {}
                record = Record(path=path, file=i, start=start, payload=payload, features=features)
                if not features:
                    raise record.error("is no tf.train.Example with features")
                yield record
                advance(position - before)
                before = position
    if record is None:
        raise UserError(f"{paths[0]}{f' and {len(paths) - 1} more' * (len(paths) > 1)}: no records")


def collect(
    found: Iterable[Record], extract: Callable[[Record], Sequence[bytes | int]], store: Store
) -> list[np.ndarray | Strings]:
    """Columns of what `extract` takes from each record: of bytes `Strings`, of integers int64 [N], of floats float32 [N]."""
    columns = []
    for group in groups(found):
        parts = list(zip(*map(extract, group), strict=True))
        columns = columns or [store.column(_STORED[type(part[0])]) for part in parts]
        for column, part in zip(columns, parts, strict=True):
            column.append(Strings.of(part) if isinstance(part[0], bytes) else part)
    return [column.finish() for column in columns]


def groups(found: Iterable[Record]) -> Iterator[list[Record]]:
    """Neighbouring records of one file, as many as may be held together."""
    group, size = [], 0
    for record in found:
        if group and (len(group) == _GROUP or size > _GROUP_BYTES or record.file != group[0].file):
            yield group
            group, size = [], 0
        group.append(record)
        size += len(record.payload)
    if group:
        yield group


def packed(path: str) -> bool:
    """Whether a file is packed; the first length of one that is not may begin with the same bytes."""
    with open(path, "rb") as file:
        head = file.read(HEADER_BYTES)
    zlib_header = head[:1] and head[0] & 15 == 8 and head[0] < 128 and int.from_bytes(head[:2], "big") % 31 == 0
    return (head.startswith(_GZIP) or bool(zlib_header)) and not _is_header(head)


@functools.lru_cache  # lengths repeat
def _is_header(head: bytes) -> bool:
    return len(head) == HEADER_BYTES and head[8:] == checksums([head[:8]], 1).tobytes()


def _payloads(path: str) -> Iterator[tuple[int, bytes, int]]:
    """Each record's start and payload, checked, and how much of the file has been read then."""
    start = 0
    with readable(path), open(path, "rb") as raw:
        file = raw
        if packed(path):
            import pyarrow as pa  # tables are read with it, and images do without

            file = io.BufferedReader(pa.CompressedInputStream(raw, "gzip"))  # which knows zlib by its header too
        while head := file.read(HEADER_BYTES):
            if not _is_header(head):
                what = "damaged, or no TFRecord file (plain, or packed with gzip or zlib)"
                raise UserError(f"{path}: {what}: wrong length of the record at byte {start:,}")
            length, _ = _HEADER.unpack(head)
            payload = file.read(length)
            if file.read(FOOTER_BYTES) != checksums([payload], 1).tobytes():
                raise UserError(f"{path}: damaged: wrong checksum of the record at byte {start:,}")
            yield start, payload, raw.tell()
            start += HEADER_BYTES + length + FOOTER_BYTES
