"""Images of one size in arrays: the IDX files of MNIST and its relatives, and CIFAR's binary files.

    source = IdxSource(name="mnist", origin="MNIST, original IDX files")
    examples = source.open("downloads/mnist", opening)
    block = next(examples.blocks(examples.pieces[0]))
    block.columns["image"].shape      # (N, 28, 28, 1)

IDX (http://yann.lecun.com/exdb/mnist): two zero bytes, a byte with the type of the elements, a byte
with the number of dimensions, each dimension as a big-endian 32-bit number, then the elements.

CIFAR (https://www.cs.toronto.edu/~kriz/cifar.html): a record is the label (for CIFAR-100 the coarse
label, then the fine one, which is the class), then 1,024 red, 1,024 green and 1,024 blue bytes. The
pickles of its Python version are never loaded.

Files that are packed or in a bucket are first copied to this machine and unpacked.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
import math
import os
import pathlib
import struct
import tarfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from common.errors import UserError
from common.storage.files import list_folder, stat_file
from common.storage.storage import File, FileChangedError
from components.convert.source import (
    LABEL,
    Block,
    Examples,
    Opening,
    Paths,
    Piece,
    Source,
    image_feature,
)
from components.convert.sources.unpacking import plain_path

_UINT8 = 8  # IDX's number for this type of elements.
_BLOCK_BYTES = 1 << 21  # Bytes of the records that are read at once.
_CIFAR_SHAPE = (32, 32, 3)
DIGITS = pathlib.Path(__file__).with_name("digits")
_IDX_NAMES = [
    f"{split}-{kind}-ubyte"
    for split in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
]
_IDX_FOLDER = "DIR, the directory of {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Array:
    """Images of one file, and their labels.

    Attributes:
      path: File with records of one length. A record ends with the pixels, one channel after
        the other.
      offset: Offset of the first record in the file.
      shape: Number of records, and bytes of a record.
      origin: File of the source with the labels, for messages.
      labels: Label bytes of each record, uint8 [N, k]; the last one is the class.
      limits: Number of different values of each label byte, [k].
    """

    path: str
    offset: int
    shape: tuple[int, int]
    origin: str
    labels: np.ndarray
    limits: Sequence[int]


_Splits = Mapping[str, Sequence[_Array]]  # The arrays of each split, in order.
# A file of the source as errors name it, and the path of the plain file.
_Unpacked = tuple[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArrayExamples(Examples):
    """Images in arrays.

    Attributes:
      arrays: Arrays of each split, in order.
      files: Files of the source that are read where they lie, and must not change.
    """

    arrays: _Splits
    files: tuple[File, ...]

    def blocks(self, piece: Piece) -> Iterator[Block]:
        """Yields the records of a piece in order.

        Raises:
          UserError: If a label is too large.
          FileChangedError: If a file was changed since it was opened; it is a UserError.
        """
        self._require_unchanged()
        height, width, channels = shape = self.inputs[0].shape
        start, stop = piece.part
        for array in self.arrays[piece.split]:
            count, size = array.shape
            records = np.memmap(array.path, np.uint8, "r", array.offset, array.shape)
            num_rows = max(1, _BLOCK_BYTES // size)
            for first in range(max(0, start), min(stop, count), num_rows):
                rows = slice(first, min(first + num_rows, stop))
                labels = array.labels[rows]
                for row, byte in np.argwhere(labels >= np.array(array.limits))[:1]:
                    raise UserError(
                        f"{array.origin}: record {first + row} has label {labels[row, byte]}; "
                        f"{self.name} has labels 0 to {array.limits[byte] - 1}"
                    )
                planes = records[rows, -math.prod(shape) :].reshape(-1, channels, height, width)
                # This is several times as fast as a copy of the transposed array.
                pixels = np.stack([*planes.swapaxes(0, 1)], axis=-1)
                yield Block(columns={"image": pixels, LABEL: labels[:, -1].astype(np.int64)})
            # From here on, positions are counted from the first record of the next array.
            start -= count
            stop -= count
        self._require_unchanged()

    def _require_unchanged(self) -> None:
        for file in self.files:
            if stat_file(file.path) != file:
                raise FileChangedError(file.path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ArraySource(Source):
    """Images in arrays, with labels.

    Attributes:
      origin: Where the images come from, in words.
      class_names: Names of the classes in the order of their numbers; None to use the numbers from
        0 to the largest label.
      value_range: Smallest and largest value that a pixel can have.
    """

    name: str
    origin: str
    class_names: Sequence[str] | None = None
    value_range: Sequence[float] = (0.0, 255.0)

    @abc.abstractmethod
    def _read(self, files: list[_Unpacked]) -> tuple[_Splits, tuple[int, ...]]:
        """Returns the arrays of each split, and height, width and channels of an image.

        Args:
          files: Files of the source, in the order of `files`.

        Raises:
          UserError: If a file is not what this source reads.
        """

    def open(self, paths: Paths, opening: Opening) -> ArrayExamples:
        """Unpacks what is packed. The labels are read too if the classes are theirs.

        Args:
          paths: Value of `--source`.
          opening: Settings and resources of the conversion.

        Raises:
          UserError: If a file is missing, damaged, or not what this source reads.
        """
        files = self.files(paths)
        copies = [
            plain_path(f, os.path.join(opening.directory, os.path.basename(f.path))) for f in files
        ]
        low, high = self.value_range
        arrays, shape = self._read([(f.path, copy) for f, copy in zip(files, copies, strict=True)])
        num_records = {split: sum(len(array.labels) for array in arrays[split]) for split in arrays}
        size = arrays["train"][0].shape[1]
        num_bytes = {split: number * size for split, number in num_records.items()}
        all_labels = (array.labels.max() for array in itertools.chain(*arrays.values()))
        return ArrayExamples(
            name=self.name,
            origin=self.origin,
            pieces=opening.even_pieces(num_records, num_bytes),
            inputs=(image_feature(shape, value_range=(low, high)),),
            class_names=tuple(self.class_names or map(str, range(1 + max(map(int, all_labels))))),
            arrays=arrays,
            files=tuple(
                file for file, copy in zip(files, copies, strict=True) if file.path == copy
            ),
        )


def _array(origin: str, records: np.memmap, labels: np.ndarray, limits: Sequence[int]) -> _Array:
    """Returns mapped records, uint8 [N, ...], as an array; the rest is as in `_Array`."""
    return _Array(
        path=str(records.filename),
        offset=records.offset,
        shape=(len(records), math.prod(records.shape[1:])),
        origin=origin,
        labels=labels,
        limits=limits,
    )


def _select(names: Sequence[str], files: Mapping[str, Any], path: str, hint: str) -> list[Any]:
    """Returns the files of some names, in order.

    Args:
      names: Names of the wanted files.
      files: Files by name.
      path: Path where the files are, for messages.
      hint: End of the message.

    Raises:
      UserError: If a file is missing.
    """
    missing = [name for name in names if name not in files]
    if missing:
        raise UserError(f"{path}: missing {', '.join(missing)}{hint}")
    return [files[name] for name in names]


@dataclasses.dataclass(frozen=True, kw_only=True)
class IdxSource(_ArraySource):
    """A set of IDX files.

    Attributes:
      embedded: Whether this is the set that comes with this program.
      needs_test: Whether the set must have a test split. If not, it has both files of that split
        or neither.
    """

    embedded: bool = False
    needs_test: bool = True

    def files(self, paths: Paths) -> list[File]:
        """Returns the files of images and labels, first of the training and then of the test split.

        If a file is there both packed (`.gz`) and plain, the plain one is taken.

        Args:
          paths: Folder of the files; None for the set that comes with this program.

        Raises:
          UserError: If a path is given for that set, there is no such folder, or a file is missing.
        """
        if self.embedded and paths is not None:
            raise UserError(
                f"dataset {self.name!r} is built in; leave out --source {paths}, or use --dataset "
                "idx"
            )
        folder = str(DIGITS) if self.embedded else self.locate_folder(paths, _IDX_FOLDER)
        # A plain file comes after the same file packed, and so takes its place below.
        listed = reversed(list_folder(folder)[1])
        files = {
            os.path.basename(f.path).removesuffix(".gz").replace(".idx", "-idx"): f for f in listed
        }
        has_test = self.needs_test or not files.keys().isdisjoint(_IDX_NAMES[2:])
        return _select(_IDX_NAMES[: 4 if has_test else 2], files, folder, " (each may end in .gz)")

    def _read(self, files: list[_Unpacked]) -> tuple[_Splits, tuple[int, ...]]:
        arrays, shape = {}, tuple[int, ...]()
        for split, image_file, label_file in zip(
            ("train", "test"), files[::2], files[1::2], strict=False
        ):
            images, labels = _read_idx(*image_file, 3), _read_idx(*label_file, 1)
            shape = shape or images.shape[1:]
            if images.shape != labels.shape + shape:
                raise UserError(
                    f"{image_file[0]}: its shape is {images.shape}; train has images of {shape}, "
                    f"and there are {len(labels)} labels"
                )
            limits = [len(self.class_names or range(256))]
            arrays[split] = [_array(label_file[0], images, labels.reshape(-1, 1), limits)]
        return arrays, (*shape, 1)


def _read_idx(origin: str, path: str, dimensions: int) -> np.memmap:
    """Returns the elements of an IDX file of unsigned bytes, mapped into memory.

    Args:
      origin: Name of the file, for messages.
      path: Path of the plain file.
      dimensions: Number of dimensions that it must have.

    Raises:
      UserError: If it is no such file, or has another size than its header says.
    """
    offset, magic = 4 + 4 * dimensions, bytes((0, 0, _UINT8, dimensions))
    header = np.fromfile(path, np.uint8, offset).tobytes()
    if header[:4] != magic or len(header) < offset:
        raise UserError(
            f"{origin}: starts with {header[:4].hex() or 'nothing'}; an IDX file of unsigned bytes "
            f"in {dimensions} dimension(s) starts with {magic.hex()} and its sizes"
        )
    shape = struct.unpack(f">{dimensions}I", header[4:])
    num_bytes = math.prod(shape)
    if not num_bytes or os.path.getsize(path) != offset + num_bytes:
        raise UserError(
            f"{origin}: empty, cut short or too long; its header promises {num_bytes} bytes"
        )
    return np.memmap(path, np.uint8, "r", offset, shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CifarSource(_ArraySource):
    """CIFAR-10 or CIFAR-100.

    Attributes:
      folder: Folder of the files in the archive.
      files_of: Names of the files of each split in order, each with any number of records.
      limits: Number of different values of each label byte; the last byte is the class.
    """

    folder: str
    files_of: Mapping[str, Sequence[str]]
    limits: Sequence[int]

    def files(self, paths: Paths) -> list[File]:
        """Returns the archive, or the files of a directory, in order.

        Args:
          paths: Path of the archive; or of the directory, which has the files or a folder `folder`
            with them.

        Raises:
          UserError: If there is nothing at the path, or a file is missing.
        """
        path, archive = self.locate_one(
            paths, "PATH, its binary version: a directory or an archive"
        )
        if archive:
            return [archive]
        files = list_folder(f"{path}/{self.folder}")[1] or list_folder(path)[1]
        return self._select(path, {os.path.basename(file.path): file for file in files})

    def _read(self, files: list[_Unpacked]) -> tuple[_Splits, tuple[int, ...]]:
        if len(files) > 1:
            parts = [(origin, path, 0, os.path.getsize(path)) for origin, path in files]
        else:
            parts = self._members(*files[0])
        arrays = (self._records(*part) for part in parts)
        return {
            s: [*itertools.islice(arrays, len(names))] for s, names in self.files_of.items()
        }, _CIFAR_SHAPE

    def _members(self, archive: str, path: str) -> list[tuple[str, str, int, int]]:
        """Returns the arguments of `_records` for each file in an archive.

        Args:
          archive: Name of the archive, for messages.
          path: Path of the archive after decompression.

        Raises:
          UserError: If it is no tar archive, or a file is missing.
        """
        try:
            with tarfile.open(path, "r:") as tar:
                members = {
                    os.path.basename(member.name): member for member in tar if member.isfile()
                }
        except tarfile.TarError as error:
            raise UserError(f"{archive}: {error}") from None
        return [
            (f"{archive}: {m.name}", path, m.offset_data, m.size)
            for m in self._select(archive, members)
        ]

    def _records(self, origin: str, path: str, offset: int, num_bytes: int) -> _Array:
        size = len(self.limits) + math.prod(_CIFAR_SHAPE)
        if num_bytes % size or not num_bytes:
            raise UserError(
                f"{origin}: {num_bytes} bytes, which is no positive number of whole records of "
                f"{size} bytes"
            )
        records = np.memmap(path, np.uint8, "r", offset, (num_bytes // size, size))
        return _array(origin, records, records[:, : len(self.limits)], self.limits)

    def _select(self, path: str, files: Mapping[str, Any]) -> list[Any]:
        hint = "; needed are the files of the binary version, or its archive"
        return _select([*itertools.chain(*self.files_of.values())], files, path, hint)


ARRAYS: Mapping[str, Source] = {
    name: (CifarSource if "files_of" in facts else IdxSource)(name=name, **facts)
    for name, facts in tomllib.loads(
        pathlib.Path(__file__).with_suffix(".toml").read_text()
    ).items()
}
