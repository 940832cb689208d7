"""Records of TFRecord files that others wrote, each a `tf.train.Example`, read without TensorFlow.

for record in records(cut, cut.pieces[0]):
    record.needed("image/class/label", "int")
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from common.errors import UserError, unknown
from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION
from components.convert.pieces import Cut, Piece
from components.convert.sources.examples.record_files import payloads
from components.convert.tables.schema import ImageSchema

_GROUP, _GROUP_BYTES = 1 << 14, 1 << 22  # records that are held together, and their bytes
_LISTS = {"int": "int64_list", "float": "float_list", "string": "bytes_list"}
_NOTHING = "no value"
_ELEMENT = re.compile(r"(?P<key>.+)\[(?P<index>[0-9]+)\]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """A record and where it is.

    Attributes:
      start: Of the record in the file, in bytes.
      position: In the split.
      num_bytes: That it has.
      features: Its values, as `tf.train.Feature`, by key.
    """

    path: str
    start: int
    position: int
    num_bytes: int
    features: Mapping[str, Any]

    @property
    def place(self) -> str:
        """Says where it is."""
        return f"{self.path}: record at byte {self.start:,}"

    def error(self, message: str) -> UserError:
        """An error that names the record."""
        return UserError(f"{self.place}: {message}")

    def value(self, key: str, kind: str, index: int | None = None) -> Any:
        """The only value of a feature, or the one at an index, if there are that many; None if there is no value.

        Its kind has to be `int`, `float` or `string`, which is bytes.
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


def records(cut: Cut, piece: Piece) -> Iterator[Record]:
    """The records of a piece, in order; others than `tf.train.Example` are an error."""
    from google.protobuf.message import DecodeError
    from tensorflow_datasets.proto import tf_example_pb2

    path = cut.facts["files"][piece.file]["path"]
    for start, position, payload in payloads(cut, piece):
        try:
            features = tf_example_pb2.Example.FromString(payload).features.feature
        except DecodeError:
            features = {}
        record = Record(path=path, start=start, position=position, num_bytes=len(payload), features=features)
        if not features:
            raise record.error("is no tf.train.Example with features")
        yield record


def groups(found: Iterable[Record]) -> Iterator[list[Record]]:
    """Neighbouring records, as many as may be held together."""
    group, size = [], 0
    for record in found:
        if group and (len(group) == _GROUP or size > _GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(record)
        size += record.num_bytes
    if group:
        yield group
