"""Images of one size in arrays: the IDX files of MNIST and its relatives, and the binary files of CIFAR.

    examples = IdxSource(name="mnist", origin="MNIST, original IDX files").open("downloads/mnist", opening)
    next(examples.blocks(examples.pieces[0])).columns["image"].shape      # (N, 28, 28, 1)

IDX (http://yann.lecun.com/exdb/mnist): two zero bytes, an element type, the number of dimensions, each dimension as a
big-endian 32-bit number, then the elements. CIFAR (https://www.cs.toronto.edu/~kriz/cifar.html): a record is the label
(CIFAR-100: the coarse label, then the fine one, which is the class), then 1,024 red, 1,024 green and 1,024 blue bytes.
The pickles of its Python version are never loaded.

Files that are compressed, in an archive or in a bucket are first unpacked into plain files of this machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import itertools
import lzma
import math
import os
import pathlib
import struct
import tarfile
import tomllib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from common.errors import UserError, readable, writable
from common.storage.files import list_folder, open_file, require_file
from common.storage.storage import File, is_remote
from components.convert.source import LABEL, Block, Examples, Opening, Paths, Piece, Source, even_pieces, image_feature

_UINT8 = 8
_OPENERS = {b"\x1f\x8b": gzip.open, b"\xfd7": lzma.open}  # By what a compressed file begins with.
_BLOCK_BYTES = 1 << 21  # Of records that are read at once.
_CIFAR_SHAPE = (32, 32, 3)
DIGITS = pathlib.Path(__file__).with_name("digits")
_IDX_NAMES = [f"{split}-{kind}-ubyte" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
_IDX_FOLDER = "DIR, the directory of {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]"


def _plain(file: File, directory: str) -> File:
    """Returns the file itself if it is a plain one of this machine, else a plain copy in the directory."""
    with readable(file.path), open_file(file, stop=2) as data:
        unpack = _OPENERS.get(data.read(2), contextlib.nullcontext if is_remote(file.path) else None)
    if not unpack:
        return file
    path = os.path.join(directory, os.path.basename(file.path))
    with writable(path), open(path, "wb") as copy:
        copy.writelines(_content(file, unpack))
    return require_file(path)


def _content(file: File, unpack: Any) -> Iterator[bytes]:
    """Yields the content of a file; errors of reading, unlike those of writing what it yields, are `UserError`s of it."""
    try:
        with readable(file.path), open_file(file) as raw, unpack(raw) as content:
            while chunk := content.read(_BLOCK_BYTES):
                yield chunk
    except (lzma.LZMAError, zlib.error, EOFError) as error:
        raise UserError(f"{file.path}: {error}") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Array:
    """Records of one length in a plain file of this machine.

    Attributes:
      origin: Names the file of the source.
      file: The plain file.
      offset: Where the first record begins.
      shape: Number of records, and the shape of one.
    """

    origin: str
    file: File
    offset: int
    shape: tuple[int, ...]

    def labels(self, limits: Sequence[int], dataset: str) -> np.ndarray:
        """Returns the last label byte of each record, uint8 [N]; one that is not below its limit is a `UserError`."""
        records = np.memmap(self.file.path, np.uint8, "r", self.offset, self.shape).reshape(self.shape[0], -1)
        labels = np.array(records[:, : len(limits)])
        for row, byte in np.argwhere(labels >= np.array(limits))[:1]:
            raise UserError(
                f"{self.origin}: record {row} has label {labels[row, byte]}; {dataset} has labels 0 to "
                f"{limits[byte] - 1}"
            )
        return labels[:, -1]


_Splits = Mapping[str, Sequence[_Array]]  # Arrays by split.


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArrayExamples(Examples):
    """Images in arrays, whose records end with the pixels, a channel after the other; and labels, uint8 [N]; by split."""

    arrays: _Splits
    labels: Mapping[str, np.ndarray]

    def blocks(self, piece: Piece) -> Iterator[Block]:
        """Reads the records of a piece."""
        height, width, channels = shape = self.inputs[0].shape
        start, stop = piece.part
        array_start = 0  # Number of its first record in the split.
        for array in self.arrays[piece.split]:
            size = math.prod(array.shape[1:])
            array_stop = array_start + array.shape[0]
            while start < min(stop, array_stop):
                end = min(start + max(1, _BLOCK_BYTES // size), stop, array_stop)
                first, last = (array.offset + (row - array_start) * size for row in (start, end))
                with readable(array.origin), open_file(array.file, first, last) as data:
                    records = np.frombuffer(data.read(last - first), np.uint8).reshape(-1, size)
                planes = records[:, -math.prod(shape) :].reshape(-1, channels, height, width)
                pixels = np.empty((end - start, *shape), np.uint8)
                for channel in range(channels):  # Some times as fast as a copy of the transposed array.
                    pixels[..., channel] = planes[:, channel]
                yield Block(columns={"image": pixels, LABEL: self.labels[piece.split][start:end].astype(np.int64)})
                start = end
            array_start = array_stop


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ArraySource(Source):
    """Arrays with labels.

    Attributes:
      origin: Where they come from, in words.
      class_names: In the order of the class; None for the numbers from 0 to the largest label.
      value_range: Smallest and largest value that a pixel can have.
    """

    name: str
    origin: str
    class_names: Sequence[str] | None = None
    value_range: Sequence[float] = (0.0, 255.0)

    def _examples(
        self, opening: Opening, arrays: _Splits, label_arrays: _Splits, limits: Any, shape: Any
    ) -> ArrayExamples:
        """Reads all labels, and returns the examples in even pieces.

        Args:
          opening: As given.
          arrays: Images.
          label_arrays: Arrays whose records begin with the labels; these may be the same.
          limits: Number of different values of each label byte; the last one is the class.
          shape: Height, width and channels of an image.
        """
        labels = {s: np.concatenate([a.labels(limits, self.name) for a in label_arrays[s]]) for s in arrays}
        size = math.prod(arrays["train"][0].shape[1:])
        numbers = opening.num_pieces({split: len(values) * size for split, values in labels.items()})
        pieces = (even_pieces(s, len(labels[s]), count=count, record_bytes=size) for s, count in numbers.items())
        return ArrayExamples(
            name=self.name,
            origin=self.origin,
            pieces=tuple(itertools.chain(*pieces)),
            inputs=(image_feature(shape, value_range=tuple(self.value_range)),),
            class_names=tuple(
                self.class_names or map(str, range(1 + max(int(each.max()) for each in labels.values())))
            ),
            arrays=arrays,
            labels=labels,
        )


def _select(names: Sequence[str], files: Mapping[str, Any], path: str, hint: str) -> list[Any]:
    """Returns the files of those names in order; refuses a path that lacks any."""
    missing = [name for name in names if name not in files]
    if missing:
        raise UserError(f"{path}: missing {', '.join(missing)}{hint}")
    return [files[name] for name in names]


@dataclasses.dataclass(frozen=True, kw_only=True)
class IdxSource(_ArraySource):
    """A set of IDX files.

    Attributes:
      embedded: Whether the set is the one that we ship.
      needs_test: Whether the set has to have a test split; else both of its files or neither.
    """

    embedded: bool = False
    needs_test: bool = True

    def files(self, paths: Paths) -> list[File]:
        """Returns images and labels of the training split, and of the test split."""
        if self.embedded and paths is not None:
            raise UserError(f"dataset {self.name!r} is built in; leave out --source {paths}, or use --dataset idx")
        folder = str(DIGITS) if self.embedded else self.locate_folder(paths, _IDX_FOLDER)
        listed = reversed(list_folder(folder)[1])  # Of two a plain file comes after its packed one.
        files = {os.path.basename(f.path).removesuffix(".gz").replace(".idx", "-idx"): f for f in listed}
        has_test = self.needs_test or not files.keys().isdisjoint(_IDX_NAMES[2:])
        return _select(_IDX_NAMES[: 4 if has_test else 2], files, folder, " (each may end in .gz)")

    def open(self, paths: Paths, opening: Opening) -> ArrayExamples:
        """Reads the headers, and all labels."""
        images, labels, files = {}, {}, self.files(paths)
        for split, file, label_file in zip(("train", "test"), files[::2], files[1::2], strict=False):
            image = _idx_array(file, 3, opening.directory)
            label = _idx_array(label_file, 1, opening.directory)
            images[split], labels[split] = [image], [label]
            shape = images["train"][0].shape[1:]
            if image.shape != label.shape + shape:
                raise UserError(
                    f"{file.path}: its shape is {image.shape}; train has images of {shape}, and there are "
                    f"{label.shape[0]} labels"
                )
        return self._examples(opening, images, labels, [len(self.class_names or range(256))], (*shape, 1))


def _idx_array(source: File, dimensions: int, directory: str) -> _Array:
    """Returns the elements of an IDX file of unsigned bytes."""
    file, offset, magic = _plain(source, directory), 4 + 4 * dimensions, bytes((0, 0, _UINT8, dimensions))
    with readable(source.path), open_file(file, stop=offset) as data:
        header = data.read(offset)
    if header[:4] != magic or len(header) < offset:
        raise UserError(
            f"{source.path}: starts with {header[:4].hex() or 'nothing'}; an IDX file of unsigned bytes in "
            f"{dimensions} dimension(s) starts with {magic.hex()} and its sizes"
        )
    shape = struct.unpack(f">{dimensions}I", header[4:])
    num_bytes = math.prod(shape)
    if not num_bytes or file.num_bytes != offset + num_bytes:
        raise UserError(f"{source.path}: empty, cut short or too long; its header promises {num_bytes} bytes")
    return _Array(origin=source.path, file=file, offset=offset, shape=shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CifarSource(_ArraySource):
    """CIFAR-10 or CIFAR-100.

    Attributes:
      folder: Folder of the files in the archive.
      files_of: By split, its files in order, each with any number of records.
      limits: Number of different values of each label byte; the last one is the class.
    """

    folder: str
    files_of: Mapping[str, Sequence[str]]
    limits: Sequence[int]

    def files(self, paths: Paths) -> list[File]:
        """Returns the files of a directory, or the archive."""
        path, archive = self.locate_one(paths, "PATH, its binary version: a directory or an archive")
        if archive:
            return [archive]
        files = list_folder(f"{path}/{self.folder}")[1] or list_folder(path)[1]
        return self._select(path, {os.path.basename(file.path): file for file in files})

    def open(self, paths: Paths, opening: Opening) -> ArrayExamples:
        """Finds the records, in an archive too, and reads all labels."""
        files = {file.path: _plain(file, opening.directory) for file in self.files(paths)}
        if len(files) > 1:
            arrays = iter([self._array(origin, file, 0, file.num_bytes) for origin, file in files.items()])
        else:
            arrays = iter(self._members(*files.popitem()))
        splits = {split: [*itertools.islice(arrays, len(names))] for split, names in self.files_of.items()}
        return self._examples(opening, splits, splits, self.limits, _CIFAR_SHAPE)

    def _members(self, archive: str, file: File) -> list[_Array]:
        """Returns the records in an archive that is not compressed any more."""
        try:
            with tarfile.open(file.path, "r:") as tar:
                members = {os.path.basename(member.name): member for member in tar if member.isfile()}
        except tarfile.TarError as error:
            raise UserError(f"{archive}: {error}") from None
        members = self._select(archive, members)
        return [self._array(f"{archive}: {m.name}", file, m.offset_data, m.size) for m in members]

    def _array(self, origin: str, file: File, offset: int, num_bytes: int) -> _Array:
        size = len(self.limits) + math.prod(_CIFAR_SHAPE)
        if num_bytes % size or not num_bytes:
            raise UserError(
                f"{origin}: {num_bytes} bytes, which is no positive number of whole records of {size} bytes"
            )
        return _Array(origin=origin, file=file, offset=offset, shape=(num_bytes // size, size))

    def _select(self, path: str, files: Mapping[str, Any]) -> list[Any]:
        names = [*itertools.chain(*self.files_of.values())]
        return _select(names, files, path, "; needed are the files of the binary version, or its archive")


ARRAYS: Mapping[str, Source] = {
    name: (CifarSource if "files_of" in facts else IdxSource)(name=name, **facts)
    for name, facts in tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text()).items()
}
