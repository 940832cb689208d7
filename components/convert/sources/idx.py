"""The IDX files in which MNIST and its relatives are published, gzip-compressed or not.

    reader = IdxReader(name="mnist", origin="MNIST, original IDX files")
    cut = reader.cut("downloads/mnist", pieces=8, piece_bytes=1 << 26)
    block = next(reader.open("downloads/mnist", cut).blocks(cut.pieces[0]))
    block.columns["image"].shape     # (N, 28, 28, 1)

Format: two zero bytes, an element type, the number of dimensions, each dimension as a big-endian 32-bit number, then
the elements (http://yann.lecun.com/exdb/mnist). The header says how many bytes are due, and not one more is unpacked.
"""

import contextlib
import dataclasses
import gzip
import math
import os
import pathlib
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping
from typing import IO, Self

import numpy as np

from components.convert.images.pixels import image_feature
from components.convert.pieces import Block, Cut, Piece, Source, evenly
from components.convert.sources.base import Paths, Reader, fill
from components.convert.writing.label_feature import LABEL
from trainer.base.errors import UserError, readable

_IMAGES, _LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
_UINT8 = 8
_GZIP_MAGIC = b"\x1f\x8b"
_DEFLATE_RATIO = 1032  # the most that deflate can shrink anything
_BLOCK_BYTES = 1 << 21  # of images that are read at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class Array:
    """An IDX file of unsigned bytes, whose header says its shape; where the elements begin, and whether they are packed."""

    path: pathlib.Path
    shape: tuple[int, ...]
    offset: int
    packed: bool

    @classmethod
    def of(cls, path: pathlib.Path, *, dimensions: int) -> Self:
        """Reads the header of a file, which promises at least one element, and no more than the file can have.

        Raises:
          UserError: If it is no such header, or the file is too short or too long for it, as far as its size tells.
        """
        with _opened(path) as (file, packed):
            shape = _shape(path, file.read(4), file.read(4 * dimensions), dimensions)
            found, size = cls(path=path, shape=shape, offset=file.tell(), packed=packed), os.path.getsize(path)
            due = math.prod(shape)
            if due > size * (_DEFLATE_RATIO if packed else 1):
                raise found.error("cut short; it has not")
            if not packed and size != found.offset + due:
                raise found.error("cut short; it has not" if size < found.offset + due else "more data than")
        return found

    def error(self, what: str) -> UserError:
        """Says that the file has not the bytes that are due."""
        return UserError(f"{self.path}: {what} the {math.prod(self.shape)} bytes that its header promises")

    def rows(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """The elements [N, ...] of rows of the first dimension, some at a time; behind the last row the file has to end."""
        step = max(1, _BLOCK_BYTES // (row_bytes := math.prod(self.shape[1:])))
        with _opened(self.path) as (file, _):
            file.seek(self.offset + start * row_bytes)
            for at in range(start, stop, step):
                rows = np.empty((min(step, stop - at), *self.shape[1:]), np.uint8)
                if fill(rows, file):
                    raise self.error("cut short; it has not")
                yield rows
            if stop == self.shape[0] and file.read(1):
                raise self.error("more data than")

    @property
    def whole(self) -> np.ndarray:
        """All of it."""
        return np.concatenate(list(self.rows(0, self.shape[0])))


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[tuple[IO[bytes], bool]]:
    """A file's content, unpacked, and whether it is packed."""
    try:
        with readable(path), open(path, "rb") as raw:
            packed = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            with gzip.open(raw) if packed else raw as file:
                yield file, packed
    except (EOFError, zlib.error) as error:
        raise UserError(f"{path}: {error}") from None


def _shape(path: pathlib.Path, magic: bytes, sizes: bytes, dimensions: int) -> tuple[int, ...]:
    if magic != bytes((0, 0, _UINT8, dimensions)):
        wanted = f"0000{_UINT8:02x}{dimensions:02x}, unsigned bytes in {dimensions} dimension(s)"
        raise UserError(f"{path}: starts with {magic.hex() or 'nothing'} instead of the IDX magic number {wanted}")
    if len(sizes) < 4 * dimensions:
        raise UserError(f"{path}: cut short in its header")
    shape = struct.unpack(f">{dimensions}I", sizes)
    if not all(shape):
        raise UserError(f"{path}: empty; its dimensions are {' x '.join(map(str, shape))}")
    return shape


@dataclasses.dataclass(frozen=True, kw_only=True)
class IdxReader(Reader):
    """Reads a set of IDX files.

    Attributes:
      origin: Where the set comes from, in words.
      class_names: None for the numbers from 0 to the largest label.
      value_range: Smallest and largest value that a pixel can have.
      embedded: Directory of a set that we ship; None if `--source` gives it.
      prefixes: By native split, what its file names start with.
      required: Native splits that must be there; of the others both files or neither.
    """

    name: str
    origin: str
    class_names: tuple[str, ...] | None = tuple("0123456789")
    value_range: tuple[float, float] = (0.0, 255.0)
    embedded: pathlib.Path | None = None
    prefixes: Mapping[str, str] = dataclasses.field(default_factory=lambda: {"train": "train-", "test": "t10k-"})
    required: frozenset[str] = frozenset({"train", "test"})

    def files(self, source: Paths) -> list[pathlib.Path]:
        """The files that `read` reads."""
        return [path for pair in self._pairs(source).values() for path in pair]

    def cut(self, source: Paths, *, pieces: int, piece_bytes: int) -> Cut:
        """Reads headers and labels; what is packed cannot be cut."""
        cut, first, largest = [], None, 0
        for split, (images, labels) in self._pairs(source).items():
            pixels, classes = Array.of(images, dimensions=3), Array.of(labels, dimensions=1)
            if pixels.shape[0] != classes.shape[0]:
                raise UserError(
                    f"{labels}: {classes.shape[0]} labels for the {pixels.shape[0]} images of {images.name}"
                )
            first = first or pixels.shape
            if pixels.shape[1:] != first[1:]:
                sizes = [" x ".join(map(str, shape[1:])) for shape in (pixels.shape, first)]
                raise UserError(f"{images}: images of {sizes[0]} pixels; {sizes[1]} in train")
            values = classes.whole
            largest = max(largest, int(values.max()))
            if self.class_names and (wrong := values >= len(self.class_names)).any():
                record = int(wrong.argmax())
                raise UserError(
                    f"{labels}: record {record} has label {values[record]}; {self.name} has classes 0 to "
                    f"{len(self.class_names) - 1}"
                )
            count = 1 if pixels.packed or classes.packed else max(pieces, math.prod(pixels.shape) // piece_bytes)
            cut += evenly(split, len(values), count=count, each_bytes=math.prod(pixels.shape[1:]))
        return Cut(pieces=tuple(cut), facts={"size": first[1:], "classes": largest + 1})

    def open(self, source: Paths, cut: Cut) -> "IdxSource":
        """The images of the directory `source`, or the embedded ones."""
        return IdxSource(
            name=self.name,
            origin=self.origin,
            inputs=(image_feature((*cut.facts["size"], 1), value_range=self.value_range),),
            class_names=self.class_names or tuple(map(str, range(cut.facts["classes"]))),
            pairs=self._pairs(source),
        )

    def _pairs(self, source: Paths) -> dict[str, tuple[pathlib.Path, ...]]:
        """The image file and the label file of each split."""
        if self.embedded and source is not None:
            raise UserError(f"dataset {self.name!r} is built in; leave out --source {source}, or use --dataset idx")
        names = ", ".join(f"{prefix}{{images-idx3,labels-idx1}}-ubyte[.gz]" for prefix in self.prefixes.values())
        directory = self.embedded or self.directory(source, f"DIR, the directory of {names}")
        pairs, missing, present = {}, [], frozenset(os.listdir(directory))
        for split, prefix in self.prefixes.items():
            pair = {name: _variant(directory, present, name) for name in (prefix + _IMAGES, prefix + _LABELS)}
            if split in self.required or any(pair.values()):
                missing += [name for name, path in pair.items() if path is None]
                pairs[split] = tuple(pair.values())
        if missing:
            raise UserError(f"{directory}: missing {', '.join(missing)} (each may end in .gz)")
        return pairs


@dataclasses.dataclass(frozen=True, kw_only=True)
class IdxSource(Source):
    """The images and labels of pairs of files, by split."""

    pairs: Mapping[str, tuple[pathlib.Path, ...]]

    def blocks(self, piece: Piece) -> Iterator[Block]:
        """Reads the rows of a piece."""
        images, labels = (Array.of(path, dimensions=n) for path, n in zip(self.pairs[piece.split], (3, 1), strict=True))
        classes = np.concatenate(list(labels.rows(piece.position, piece.position + piece.extent)))
        at = 0
        for pixels in images.rows(piece.position, piece.position + piece.extent):
            rows = np.arange(at, at := at + len(pixels))
            columns = {"image": pixels[..., np.newaxis], LABEL: classes[rows]}
            yield Block(positions=piece.position + rows, columns=columns)


def _variant(directory: pathlib.Path, present: Collection[str], name: str) -> pathlib.Path | None:
    """The file of that name, with `.gz` or without, and perhaps with `.` for the last `-` as some have it."""
    dotted = name.replace("-idx", ".idx")
    paths = [directory / variant for variant in (name, f"{name}.gz", dotted, f"{dotted}.gz") if variant in present]
    # What is there and no file, a link to nowhere, is for the reader to refuse: left out it would be missed by nobody.
    return min(paths, key=lambda path: not path.is_file(), default=None)
