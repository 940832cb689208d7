"""The IDX files in which MNIST and its relatives are published, gzip-compressed or not.

    source = IdxReader(name="mnist", origin="MNIST, original IDX files").read("downloads/mnist")
    source.splits["train"]["image"].shape     # (60000, 28, 28, 1)

Format: two zero bytes, an element type, the number of dimensions, each dimension as a big-endian 32-bit number, then
the elements (http://yann.lecun.com/exdb/mnist). The header says how many bytes are due, and not one more is unpacked.
"""

import dataclasses
import gzip
import math
import os
import pathlib
import struct
import zlib
from collections.abc import Collection, Mapping

import numpy as np

from components.convert.images.pixels import image_source
from components.convert.source import Source
from components.convert.sources.base import Paths, Reader
from components.convert.writing.column_store import MEMORY, Store, fill
from components.convert.writing.progress import track
from trainer.base.errors import UserError, readable

_IMAGES, _LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
_UINT8 = 8
_GZIP_MAGIC = b"\x1f\x8b"
_DEFLATE_RATIO = 1032  # the most that deflate can shrink anything


def read_array(path: pathlib.Path, *, dimensions: int, store: Store = MEMORY) -> np.ndarray:
    """The uint8 array of that many dimensions in an IDX file; it has at least one element.

    Raises:
      UserError: If the file is no such array, is cut short, has bytes to spare or, unpacked, fits nowhere.
    """
    try:
        with readable(path), open(path, "rb") as raw:
            packed = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            with gzip.open(raw) if packed else raw as file:
                shape = _shape(path, file.read(4), file.read(4 * dimensions), dimensions)
                due, size = math.prod(shape), os.path.getsize(path)
                # Reading sets aside what the header claims, so the claim is weighed first.
                if due > size * (_DEFLATE_RATIO if packed else 1):
                    spare = -1
                elif packed:
                    array = store.empty(shape, path)
                    with track(f"unpacking {path.name}", due, "bytes") as advance:
                        missing = fill(array, file, advance)
                    spare = len(file.read(1)) - missing
                elif not (spare := size - file.tell() - due):
                    array = store.map(path, shape, offset=file.tell())
                if spare:
                    what = "more data than" if spare > 0 else "cut short; it has not"
                    raise UserError(f"{path}: {what} the {due} bytes that its header promises")
    except (EOFError, zlib.error) as error:
        raise UserError(f"{path}: {error}") from None
    return array


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

    def read(self, source: Paths, store: Store = MEMORY) -> Source:
        """Reads the set from the directory `source`, or the embedded one."""
        pairs, splits = self._pairs(source), {}
        for split, (images, labels) in pairs.items():
            pixels = read_array(images, dimensions=3, store=store)
            classes = read_array(labels, dimensions=1, store=store)
            if len(pixels) != len(classes):
                raise UserError(f"{labels}: {len(classes)} labels for the {len(pixels)} images of {images.name}")
            splits[split] = {"image": pixels[..., np.newaxis], "label": classes}
        largest = max(int(columns["label"].max()) for columns in splits.values())
        class_names = self.class_names or tuple(str(label) for label in range(largest + 1))
        height, width, _ = splits["train"]["image"].shape[1:]
        for split, (images, labels) in pairs.items():
            if (shape := splits[split]["image"].shape[1:3]) != (height, width):
                raise UserError(f"{images}: images of {shape[0]} x {shape[1]} pixels; {height} x {width} in train")
            if (wrong := splits[split]["label"] >= len(class_names)).any():
                record = int(wrong.argmax())
                raise UserError(
                    f"{labels}: record {record} has label {splits[split]['label'][record]}; {self.name} has classes 0 to "
                    f"{len(class_names) - 1}"
                )
        return image_source(
            splits,
            name=self.name,
            origin=self.origin,
            class_names=class_names,
            value_range=self.value_range,
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


def _variant(directory: pathlib.Path, present: Collection[str], name: str) -> pathlib.Path | None:
    """The file of that name, with `.gz` or without, and perhaps with `.` for the last `-` as some have it."""
    dotted = name.replace("-idx", ".idx")
    paths = [directory / variant for variant in (name, f"{name}.gz", dotted, f"{dotted}.gz") if variant in present]
    # What is there and no file, a link to nowhere, is for the reader to refuse: left out it would be missed by nobody.
    return min(paths, key=lambda path: not path.is_file(), default=None)
