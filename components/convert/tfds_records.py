"""Records of the TFRecord files that TensorFlow Datasets has prepared, read without TensorFlow.

lengths, labels = collect("train", info.splits["train"], extract, (np.int64, np.int64), store)
"""

from __future__ import annotations

import dataclasses
import io
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from components.convert import progress
from components.convert.store import Store
from components.convert.strings import Strings
from trainer.errors import UserError
from trainer.framing import FOOTER_BYTES, checksums

if TYPE_CHECKING:
    from tensorflow_datasets.core import SplitInfo

_HEADER = struct.Struct("<QI")
_BLOCK = 1 << 14  # records whose values are held as Python objects


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """A record and where it is.

    Attributes:
      path: Of its file.
      file: Position of that file among those of the split.
      start: Where the payload starts in the file.
      payload: Its bytes.
      features: Its values, as `tf.train.Feature`, by key.
    """

    path: str
    file: int
    start: int
    payload: bytes
    features: Mapping[str, Any]

    def class_of(self, label: str, classes: int) -> int:
        """The class of the example.

        Raises:
          UserError: If it is none.
        """
        value = self.features[label].int64_list.value[0]
        if not 0 <= value < classes:
            raise UserError(
                f"{self.path}: record at byte {self.start}: {label} is {value}, no class of 0 to {classes - 1}"
            )
        return value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slices:
    """Image files that lie in other files.

    Attributes:
      paths: Of these files.
      files: Of each image, the position of its file, [N].
      starts: Where it starts there, int64 [N].
      lengths: Bytes of each, int64 [N].
    """

    paths: Sequence[str]
    files: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    def open(self, i: int) -> IO[bytes]:
        """The content of one."""
        with open(self.paths[self.files[i]], "rb") as file:
            file.seek(self.starts[i])
            return io.BytesIO(file.read(self.lengths[i]))

    def place(self, i: int) -> str:
        """The file of one, and where in it."""
        return f"{self.paths[self.files[i]]}: image at byte {self.starts[i]}"


def collect(
    split: str,
    part: SplitInfo,
    extract: Callable[[Record], Sequence[Any]],
    dtypes: Sequence[np.typing.DTypeLike],
    store: Store,
) -> list[np.ndarray | Strings]:
    """Columns of what `extract` takes from each record; the type `bytes` gives `Strings`.

    Raises:
      UserError: If a file is missing or damaged, or a record lacks something.
    """
    columns = [_Texts(store) if dtype is bytes else store.column(dtype) for dtype in dtypes]
    rows = []

    def flush() -> None:
        for column, values in zip(columns, zip(*rows, strict=True), strict=bool(rows)):
            column.append(values)
        rows.clear()

    with progress.track(f"looking at {split}", part.num_examples, "records") as advance:
        for record in _records([str(path) for path in part.filepaths]):
            try:
                rows.append(extract(record))
            except (IndexError, KeyError):
                raise UserError(
                    f"{record.path}: record at byte {record.start}: is not what the dataset's features say"
                ) from None
            if len(rows) == _BLOCK:
                flush()
            advance(1)
    flush()
    return [column.finish() for column in columns]


class _Texts:
    """A column of byte strings that grows."""

    def __init__(self, store: Store):
        self._data, self._lengths = store.column(np.uint8), store.column(np.int64)

    def append(self, values: Sequence[bytes]) -> None:
        self._data.append(np.frombuffer(b"".join(values), np.uint8))
        self._lengths.append([len(value) for value in values])

    def finish(self) -> Strings:
        return Strings(data=self._data.finish(), lengths=self._lengths.finish())


def _records(paths: Sequence[str]) -> Iterator[Record]:
    from google.protobuf.message import DecodeError
    from tensorflow_datasets.proto import tf_example_pb2

    for i, path in enumerate(paths):
        try:
            with open(path, "rb") as file:
                while header := file.read(_HEADER.size):
                    start = file.tell()
                    length, checksum = _HEADER.unpack(header.ljust(_HEADER.size))
                    if checksum != checksums([header[:8]], 1)[0]:
                        raise UserError(
                            f"{path}: damaged, or no TFRecord file: wrong length of the record at byte {start}"
                        )
                    payload = file.read(length)
                    if file.read(FOOTER_BYTES) != checksums([payload], 1).tobytes():
                        raise UserError(f"{path}: damaged: wrong checksum of the record at byte {start}")
                    features = tf_example_pb2.Example.FromString(payload).features.feature
                    yield Record(path=path, file=i, start=start, payload=payload, features=features)
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from None
        except DecodeError:
            raise UserError(f"{path}: record at byte {start}: is no tf.train.Example") from None
