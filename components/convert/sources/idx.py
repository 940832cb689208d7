"""The IDX files in which MNIST and its relatives are published, gzip-compressed or not.

    reader = IdxReader(name="mnist", origin="MNIST, original IDX files")
    cut = reader.cut("downloads/mnist", pieces=8, piece_bytes=1 << 26)
    block = next(reader.open(cut).blocks(cut.pieces[0]))
    block.columns["image"].shape     # (N, 28, 28, 1)

Format: two zero bytes, an element type, the number of dimensions, each dimension as a big-endian 32-bit number, then
the elements (http://yann.lecun.com/exdb/mnist). The header says how many bytes are due, and not one more is unpacked.
"""

import contextlib
import dataclasses
import gzip
import io
import math
import pathlib
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np

from components.convert.images.pixels import image_feature
from components.convert.pieces import Block, Cut, Piece, Source, evenly
from components.convert.sources.base import Paths, Reader, fill
from components.convert.writing.label_feature import LABEL
from components.files.listing import File, inside
from components.files.reading import opened
from trainer.base.errors import UserError, readable

_IMAGES, _LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
_UINT8 = 8
_GZIP_MAGIC = b"\x1f\x8b"
_DEFLATE_RATIO = 1032  # the most that deflate can shrink anything
_HEAD_BYTES = 1 << 14  # that are read while only the header is wanted, of a file that may be packed
_BLOCK_BYTES = 1 << 21  # of images that are read at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class Array:
    """An IDX file of unsigned bytes, whose header says its shape; where the elements begin, and whether they are packed."""

    file: File
    shape: tuple[int, ...]
    offset: int
    packed: bool

    @classmethod
    def of(cls, file: File, *, dimensions: int) -> Self:
        """Reads the header of a file, which promises at least one element, and as many as the file can have by its size."""
        with _opened(file, 0, _HEAD_BYTES) as raw:
            packed = raw.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)
            with gzip.open(raw) if packed else raw as data:
                shape = _shape(file.path, data.read(4), data.read(4 * dimensions), dimensions)
                found, due = cls(file=file, shape=shape, offset=data.tell(), packed=packed), math.prod(shape)
        if due > file.num_bytes * (_DEFLATE_RATIO if packed else 1):
            raise found.error("cut short; it has not")
        if not packed and file.num_bytes != found.offset + due:
            raise found.error("cut short; it has not" if file.num_bytes < found.offset + due else "more data than")
        return found

    @classmethod
    def of_json(cls, raw: Mapping[str, Any]) -> Self:
        """What `dataclasses.asdict` has made JSON of."""
        return cls(**{**raw, "file": File(**raw["file"])})

    def error(self, what: str) -> UserError:
        """Says that the file has not the bytes that are due."""
        return UserError(f"{self.file.path}: {what} the {math.prod(self.shape)} bytes that its header promises")

    def rows(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """The elements [N, ...] of rows of the first dimension, some at a time; behind the last row the file has to end."""
        step = max(1, _BLOCK_BYTES // (row_bytes := math.prod(self.shape[1:])))
        place = (0, self.file.num_bytes) if self.packed else (self.offset + at * row_bytes for at in (start, stop))
        with _opened(self.file, *place) as raw, gzip.open(raw) if self.packed else raw as data:
            data.seek(self.offset + start * row_bytes)
            for at in range(start, stop, step):
                rows = np.empty((min(step, stop - at), *self.shape[1:]), np.uint8)
                if fill(rows, data):
                    raise self.error("cut short; it has not")
                yield rows
            if stop == self.shape[0] and data.read(1):
                raise self.error("more data than")

    @property
    def whole(self) -> np.ndarray:
        """All of it."""
        return np.concatenate(list(self.rows(0, self.shape[0])))


@contextlib.contextmanager
def _opened(file: File, start: int, stop: int) -> Iterator[io.BufferedReader]:
    """A file, from a byte until another; what is wrong with it if it is unpacked is told too."""
    try:
        with readable(file.path), opened(file, start, stop) as raw:
            yield raw
    except (EOFError, zlib.error) as error:
        raise UserError(f"{file.path}: {error}") from None


def _shape(path: str, magic: bytes, sizes: bytes, dimensions: int) -> tuple[int, ...]:
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

    def files(self, source: Paths) -> list[File]:
        """The files that `cut` and `open` read."""
        return [file for pair in self._pairs(source).values() for file in pair]

    def cut(self, source: Paths, *, pieces: int, piece_bytes: int) -> Cut:
        """Reads headers and labels; what is packed cannot be cut."""
        cut, first, largest, arrays = [], None, 0, {}
        for split, (images, labels) in self._pairs(source).items():
            pixels, classes = Array.of(images, dimensions=3), Array.of(labels, dimensions=1)
            if pixels.shape[0] != classes.shape[0]:
                raise UserError(
                    f"{labels.path}: {classes.shape[0]} labels for the {pixels.shape[0]} images of "
                    f"{images.path.rpartition('/')[2]}"
                )
            first = first or pixels.shape
            if pixels.shape[1:] != first[1:]:
                sizes = [" x ".join(map(str, shape[1:])) for shape in (pixels.shape, first)]
                raise UserError(f"{images.path}: images of {sizes[0]} pixels; {sizes[1]} in train")
            values = classes.whole
            largest = max(largest, int(values.max()))
            if self.class_names and (wrong := values >= len(self.class_names)).any():
                record = int(wrong.argmax())
                raise UserError(
                    f"{labels.path}: record {record} has label {values[record]}; {self.name} has classes 0 to "
                    f"{len(self.class_names) - 1}"
                )
            count = 1 if pixels.packed or classes.packed else max(pieces, math.prod(pixels.shape) // piece_bytes)
            cut += evenly(split, len(values), count=count, each_bytes=math.prod(pixels.shape[1:]))
            arrays[split] = [dataclasses.asdict(pixels), dataclasses.asdict(classes)]
        return Cut(pieces=tuple(cut), facts={"arrays": arrays, "classes": largest + 1})

    def open(self, cut: Cut) -> "IdxSource":
        """The images that were cut so."""
        arrays = {split: tuple(map(Array.of_json, pair)) for split, pair in cut.facts["arrays"].items()}
        return IdxSource(
            name=self.name,
            origin=self.origin,
            inputs=(image_feature((*arrays["train"][0].shape[1:], 1), value_range=self.value_range),),
            class_names=self.class_names or tuple(map(str, range(cut.facts["classes"]))),
            arrays=arrays,
        )

    def _pairs(self, source: Paths) -> dict[str, tuple[File, ...]]:
        """The image file and the label file of each split."""
        if self.embedded and source is not None:
            raise UserError(f"dataset {self.name!r} is built in; leave out --source {source}, or use --dataset idx")
        names = ", ".join(f"{prefix}{{images-idx3,labels-idx1}}-ubyte[.gz]" for prefix in self.prefixes.values())
        directory = str(self.embedded) if self.embedded else self.directory(source, f"DIR, the directory of {names}")
        pairs, missing = {}, []
        present = {file.path.rpartition("/")[2]: file for file in inside(directory)[1]}
        for split, prefix in self.prefixes.items():
            pair = {name: _variant(present, name) for name in (prefix + _IMAGES, prefix + _LABELS)}
            if split in self.required or any(pair.values()):
                missing += [name for name, file in pair.items() if file is None]
                pairs[split] = tuple(pair.values())
        if missing:
            raise UserError(f"{directory}: missing {', '.join(missing)} (each may end in .gz)")
        return pairs


@dataclasses.dataclass(frozen=True, kw_only=True)
class IdxSource(Source):
    """The images and labels of pairs of files, by split."""

    arrays: Mapping[str, tuple[Array, Array]]

    def blocks(self, piece: Piece) -> Iterator[Block]:
        """Reads the rows of a piece."""
        images, labels = self.arrays[piece.split]
        classes = np.concatenate(list(labels.rows(piece.position, piece.position + piece.extent)))
        at = 0
        for pixels in images.rows(piece.position, piece.position + piece.extent):
            rows = np.arange(at, at := at + len(pixels))
            columns = {"image": pixels[..., np.newaxis], LABEL: classes[rows]}
            yield Block(positions=piece.position + rows, columns=columns)


def _variant(present: Mapping[str, File], name: str) -> File | None:
    """The file of that name, with `.gz` or without, and perhaps with `.` for the last `-` as some have it."""
    dotted = name.replace("-idx", ".idx")
    files = [present[variant] for variant in (name, f"{name}.gz", dotted, f"{dotted}.gz") if variant in present]
    # What is there and no file, a link to nowhere, is for the reader to refuse: left out it would be missed by nobody.
    return min(files, key=lambda file: not file.version, default=None)
