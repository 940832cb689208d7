"""The IDX files in which MNIST and its relatives are published, gzip-compressed or not.

    reader = IdxReader(name="mnist", origin="MNIST, original IDX files")
    cut = reader.cut("downloads/mnist", pieces=8, piece_bytes=1 << 26)
    block = next(reader.open(cut).blocks(cut.pieces[0]))
    block.columns["image"].shape     # (N, 28, 28, 1)

Format: two zero bytes, an element type, the number of dimensions, each dimension as a big-endian 32-bit number, then
the elements (http://yann.lecun.com/exdb/mnist).
"""

import contextlib
import dataclasses
import gzip
import math
import pathlib
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import IO

import numpy as np

from common.errors import UserError, readable
from common.storage.files import list_folder, open_file
from common.storage.storage import File
from components.convert.images.pixels import image_feature
from components.convert.pieces import Block, Cut, Piece, Source, evenly
from components.convert.sources.base import Paths, Reader
from components.convert.writing.label_feature import LABEL

_IMAGES, _LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
_UINT8 = 8
_GZIP_MAGIC = b"\x1f\x8b"
_HEAD_BYTES = 1 << 14  # that are fetched while only the header is wanted, of a file that may be packed
_BLOCK_BYTES = 1 << 21  # of images that are read at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class Array:
    """An IDX file of unsigned bytes, its shape, and whether it is packed."""

    file: File
    shape: tuple[int, ...]
    packed: bool

    @classmethod
    def of(cls, file: File, dimensions: int) -> "Array":
        """Reads the header of a file."""
        with readable(file.path), open_file(file, stop=len(_GZIP_MAGIC)) as raw:
            packed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        with _opened(file, packed, 0, _HEAD_BYTES) as data:
            header = data.read(4 + 4 * dimensions)
        magic = bytes((0, 0, _UINT8, dimensions))
        if header[:4] != magic or len(header) < 4 + 4 * dimensions:
            raise UserError(
                f"{file.path}: starts with {header[:4].hex() or 'nothing'}; an IDX file of unsigned bytes in "
                f"{dimensions} dimension(s) starts with {magic.hex()} and its sizes"
            )
        shape = struct.unpack(f">{dimensions}I", header[4:])
        if not all(shape):
            raise UserError(f"{file.path}: empty; its dimensions are {' x '.join(map(str, shape))}")
        array = cls(file=file, shape=shape, packed=packed)
        if not packed and file.num_bytes != len(header) + math.prod(shape):
            raise array.wrong_size()
        return array

    def wrong_size(self) -> UserError:
        """Returns an error that says that the file has not the bytes that are due."""
        return UserError(f"{self.file.path}: cut short or too long; its header promises {math.prod(self.shape)} bytes")

    def rows(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Reads the elements [N, ...] of rows of the first dimension, some at a time; behind the last row the file has to end."""
        row_bytes = math.prod(self.shape[1:])
        step = max(1, _BLOCK_BYTES // row_bytes)
        first, last = (4 + 4 * len(self.shape) + row * row_bytes for row in (start, stop))
        with _opened(self.file, self.packed, 0 if self.packed else first, None if self.packed else last) as data:
            data.seek(first)
            for at in range(start, stop, step):
                count = min(step, stop - at)
                content = data.read(count * row_bytes)
                if len(content) < count * row_bytes:
                    raise self.wrong_size()
                yield np.frombuffer(content, np.uint8).reshape(count, *self.shape[1:])
            if stop == self.shape[0] and data.read(1):
                raise self.wrong_size()


@contextlib.contextmanager
def _opened(file: File, packed: bool, start: int, stop: int | None) -> Iterator[IO[bytes]]:
    """Opens a file; what is wrong with it while it is unpacked is told too."""
    try:
        with readable(file.path), open_file(file, start, stop) as raw, gzip.open(raw) if packed else raw as data:
            yield data
    except (EOFError, zlib.error) as error:
        raise UserError(f"{file.path}: {error}") from None


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
        cut, largest, arrays = [], 0, {}
        for split, (images, labels) in self._pairs(source).items():
            pixels, classes = Array.of(images, 3), Array.of(labels, 1)
            first, _ = arrays.get("train", (pixels, classes))
            if pixels.shape != (classes.shape[0], *first.shape[1:]):
                raise UserError(
                    f"{images.path}: {' x '.join(map(str, pixels.shape))} pixels; train has images of "
                    f"{' x '.join(map(str, first.shape[1:]))}, and there are {classes.shape[0]} labels"
                )
            values = np.concatenate(list(classes.rows(0, classes.shape[0])))
            largest = max(largest, int(values.max()))
            if self.class_names and largest >= len(self.class_names):
                raise UserError(
                    f"{labels.path}: record {int(values.argmax())} has label {largest}; {self.name} has classes 0 to "
                    f"{len(self.class_names) - 1}"
                )
            count = 1 if pixels.packed or classes.packed else max(pieces, math.prod(pixels.shape) // piece_bytes)
            cut += evenly(split, len(values), count=count, each_bytes=math.prod(pixels.shape[1:]))
            arrays[split] = pixels, classes
        facts = {split: [dataclasses.asdict(array) for array in pair] for split, pair in arrays.items()}
        return Cut(pieces=tuple(cut), facts={"arrays": facts, "classes": largest + 1})

    def open(self, cut: Cut) -> "IdxSource":
        """The images that were cut so."""
        arrays = {
            split: tuple(Array(**{**array, "file": File(**array["file"])}) for array in pair)
            for split, pair in cut.facts["arrays"].items()
        }
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
        present = {file.path.rpartition("/")[2].replace(".idx", "-idx"): file for file in list_folder(directory)[1]}
        for split, prefix in self.prefixes.items():
            pair = {name: present.get(name, present.get(f"{name}.gz")) for name in (prefix + _IMAGES, prefix + _LABELS)}
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
