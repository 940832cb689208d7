"""Images of one size in arrays: the IDX files of MNIST and its relatives, and CIFAR's binary files.

    source = ARRAYS["mnist"]
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
import tarfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from common.errors import UserError
from common.storage.files import list_folder, open_file, require_file
from common.storage.storage import File
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
_IDX_FILES = {
    split: [f"{name}-images-idx3-ubyte", f"{name}-labels-idx1-ubyte"]
    for split, name in (("train", "train"), ("test", "t10k"))
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Part:
    """A file of the source: a plain file of this machine, or some of its bytes.

    Attributes:
      origin: The file as messages name it.
      file: The plain file.
      offset: Offset of the first byte.
      num_bytes: Number of bytes.
    """

    origin: str
    file: File
    offset: int = 0
    num_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Array(_Part):
    """N records of one length, each of which ends with an image, one channel after the other.

    The origin is that of the labels.

    Attributes:
      shape: Height, width and channels of an image.
      count: Number of records.
      labels: Class of each record, uint8 [N]; None if the byte before an image is its class.
    """

    shape: tuple[int, int, int]
    count: int
    labels: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArrayExamples(Examples):
    """Images in arrays: those of each split, in order."""

    arrays: Mapping[str, Sequence[_Array]]

    def blocks(self, piece: Piece) -> Iterator[Block]:
        """Yields the records of a piece in order.

        Raises:
          UserError: If a label is no class.
          FileChangedError: If a file was changed since it was opened; it is a UserError.
        """
        start, stop = piece.part
        for array in self.arrays[piece.split]:
            height, width, channels = array.shape
            count, num_pixels = array.count, math.prod(array.shape)
            size = array.num_bytes // count
            num_rows = max(1, _BLOCK_BYTES // size)
            with open_file(array.file) as data:
                for first in range(max(0, start), min(stop, count), num_rows):
                    last = min(first + num_rows, stop, count)
                    data.seek(array.offset + first * size)
                    content = data.read((last - first) * size)
                    records = np.frombuffer(content, np.uint8).reshape(-1, size)
                    if array.labels is None:
                        labels = records[:, -num_pixels - 1]
                    else:
                        labels = array.labels[first:last]
                    for row in np.flatnonzero(labels >= len(self.class_names))[:1]:
                        raise UserError(
                            f"{array.origin}: record {first + row} has label {labels[row]}; "
                            f"{self.name} has labels 0 to {len(self.class_names) - 1}"
                        )
                    pixels = records[:, -num_pixels:]
                    planes = pixels.reshape(-1, channels, height, width).swapaxes(0, 1)
                    # This is several times as fast as a copy of the transposed array.
                    images = np.stack([*planes], axis=-1)
                    yield Block(columns={"image": images, LABEL: labels.astype(np.int64)})
            # From here on, positions are counted from the first record of the next array.
            start -= count
            stop -= count


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ArraySource(Source):
    """Images in arrays, with labels, in a directory or a tar archive.

    Attributes:
      origin: Where the images come from, in words.
      files_of: Names of the files of each split, in order. All files of a split other than `train`
        may be absent.
      embedded: Name of a folder beside this module that is read if no path is given.
      class_names: Names of the classes in the order of their numbers; None to use the numbers from
        0 to the largest label.
      value_range: Smallest and largest value that a pixel can have.
    """

    name: str
    origin: str
    files_of: Mapping[str, Sequence[str]]
    embedded: str | None = None
    class_names: Sequence[str] | None = None
    value_range: Sequence[float] = (0.0, 255.0)

    @abc.abstractmethod
    def _arrays(self, parts: list[_Part]) -> list[_Array]:
        """Returns the arrays of a split.

        Args:
          parts: Files of the split, in the order of `files_of`.

        Raises:
          UserError: If a file is not what this source reads.
        """

    def files(self, paths: Paths) -> list[File]:
        """Returns the archive, or those files of `files_of` that the directory has, in its order.

        Args:
          paths: Path of the archive; or of the directory, which has the files or a folder with
            them. None for the folder `embedded`.

        Raises:
          UserError: If not exactly one path is given, or there is nothing at it.
          ConnectionError: If a store does not answer.
        """
        if paths is None and self.embedded:
            paths = str(pathlib.Path(__file__).with_name(self.embedded))
        names = [*itertools.chain(*self.files_of.values())]
        path, archive = self.locate_one(
            paths, f"PATH, a directory or an archive of {', '.join(names)}"
        )
        if archive:
            return [archive]
        folders = (*list_folder(path)[0], path)
        files = {_name(file.path): file for each in folders for file in list_folder(each)[1]}
        return [files[name] for name in names if name in files]

    def open(self, paths: Paths, opening: Opening) -> ArrayExamples:
        """Unpacks what is packed, and finds the images; prints which splits have no files.

        Args:
          paths: Value of `--source`.
          opening: Settings and resources of the conversion.

        Raises:
          UserError: If a file is missing, damaged, or not what this source reads.
          ConnectionError: If a store does not answer.
        """
        parts, arrays = dict[str, _Part](), dict[str, list[_Array]]()
        for file in self.files(paths):
            plain = require_file(plain_path(file, opening.directory))
            part = _Part(origin=file.path, file=plain, num_bytes=plain.num_bytes)
            name = _name(file.path)
            is_plain = any(name in names for names in self.files_of.values())
            parts |= {name: part} if is_plain else _members(part)
        for split, names in self.files_of.items():
            missing = [name for name in names if name not in parts]
            if split != "train" and len(missing) == len(names):
                if paths:
                    print(f"{paths}: no files for {split}, which is drawn from train", flush=True)
                continue
            if missing:
                raise UserError(
                    f"{paths}: has no {', '.join(missing)}; dataset {self.name!r} needs them, or "
                    "an archive of them"
                )
            arrays[split] = self._arrays([parts[name] for name in names])
        every = [*itertools.chain(*arrays.values())]
        largest = (array.labels.max() for array in every if array.labels is not None)
        class_names = tuple(self.class_names or map(str, range(1 + max(map(int, largest)))))
        for array in every:
            if array.shape != every[0].shape:
                raise UserError(
                    f"{array.origin}: its images have the shape {array.shape}, and those of train "
                    f"{every[0].shape}"
                )
        low, high = self.value_range
        return ArrayExamples(
            name=self.name,
            origin=self.origin,
            pieces=opening.even_pieces(
                {split: sum(a.count for a in each) for split, each in arrays.items()},
                {split: sum(a.num_bytes for a in each) for split, each in arrays.items()},
            ),
            inputs=(image_feature(every[0].shape, value_range=(low, high)),),
            class_names=class_names,
            arrays=arrays,
        )


def _name(path: str) -> str:
    """Returns a file's name as it was published: without `.gz`, and with `-idx` for `.idx`."""
    return os.path.basename(path).removesuffix(".gz").replace(".idx", "-idx")


def _members(archive: _Part) -> dict[str, _Part]:
    """Returns the files in a tar archive, by name; a `UserError` if it is no such archive."""
    try:
        with tarfile.open(archive.file.path, "r:") as tar:
            return {
                _name(member.name): _Part(
                    origin=f"{archive.origin}: {member.name}",
                    file=archive.file,
                    offset=member.offset_data,
                    num_bytes=member.size,
                )
                for member in tar
                if member.isfile()
            }
    except tarfile.TarError as error:
        raise UserError(f"{archive.origin}: {error}") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class IdxSource(_ArraySource):
    """A set of IDX files: images and labels of each split."""

    files_of: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=lambda: _IDX_FILES)

    def _arrays(self, parts: list[_Part]) -> list[_Array]:
        images, labels = _read_idx(parts[0], 3), _read_idx(parts[1], 1)
        count, height, width = images.shape
        if count != len(labels):
            raise UserError(f"{parts[0].origin}: has {count} images, with {len(labels)} labels")
        array = _Array(
            origin=parts[1].origin,
            file=parts[0].file,
            offset=images.offset,
            num_bytes=images.size,
            shape=(height, width, 1),
            count=count,
            labels=np.array(labels),
        )
        return [array]


def _read_idx(part: _Part, dimensions: int) -> np.memmap:
    """Returns the elements of an IDX file of unsigned bytes, mapped into memory.

    Args:
      part: The file.
      dimensions: Number of dimensions that it must have.

    Raises:
      UserError: If it is no such file, has no elements, or another size than its header says.
    """
    path, magic = part.file.path, _UINT8 << 8 | dimensions
    header = np.fromfile(path, ">u4", 1 + dimensions, offset=part.offset).tolist()
    shape, offset = tuple(header[1:]), 4 * (1 + dimensions)
    num_bytes = math.prod(shape)
    if header[:1] != [magic] or not num_bytes or part.num_bytes != offset + num_bytes:
        raise UserError(
            f"{part.origin}: is not a whole IDX file of unsigned bytes in {dimensions} "
            f"dimension(s), which starts with {magic:08x} and its sizes"
        )
    return np.memmap(path, np.uint8, "r", part.offset + offset, shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CifarSource(_ArraySource):
    """CIFAR-10 or CIFAR-100.

    Attributes:
      label_bytes: Number of label bytes of a record; the last one is the class.
    """

    label_bytes: int

    def _arrays(self, parts: list[_Part]) -> list[_Array]:
        size, arrays = self.label_bytes + math.prod(_CIFAR_SHAPE), []
        for part in parts:
            if part.num_bytes % size or not part.num_bytes:
                raise UserError(
                    f"{part.origin}: {part.num_bytes} bytes, which is no positive number of whole "
                    f"records of {size} bytes"
                )
            count = part.num_bytes // size
            arrays.append(_Array(**vars(part), shape=_CIFAR_SHAPE, count=count))
        return arrays


ARRAYS: Mapping[str, Source] = {
    name: (CifarSource if "files_of" in facts else IdxSource)(name=name, **facts)
    for name, facts in tomllib.loads(
        pathlib.Path(__file__).with_suffix(".toml").read_text()
    ).items()
}
