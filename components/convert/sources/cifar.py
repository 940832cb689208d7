"""The original binary files of CIFAR-10 and CIFAR-100, in a directory or still in their archive.

    cut = CIFAR10.cut("downloads/cifar-10-binary.tar.gz", pieces=8, piece_bytes=1 << 26)
    block = next(CIFAR10.open(cut).blocks(cut.pieces[0]))
    block.columns["image"].shape      # (N, 32, 32, 3)

A record is the label (CIFAR-100: the coarse label, then the fine one, which is ours), then 1,024 red, 1,024 green and
1,024 blue bytes (https://www.cs.toronto.edu/~kriz/cifar.html). Pixels leave here as height, width, channel.

The pickles of the Python version are never loaded.
"""

import contextlib
import dataclasses
import gzip
import lzma
import pathlib
import tarfile
import tomllib
import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from common.errors import UserError, readable
from common.storage.files import list_folder, open_file
from common.storage.storage import File
from components.convert.images.pixels import image_feature
from components.convert.pieces import Block, Cut, Piece, Source, evenly
from components.convert.sources.base import Paths, Reader
from components.convert.writing.label_feature import LABEL

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_BLOCK_BYTES = 1 << 21  # of records that are read at once
_OPENERS = {b"\x1f\x8b": gzip.open, b"\xfd7": lzma.open}  # by what a packed archive begins with


@dataclasses.dataclass(frozen=True, kw_only=True)
class CifarReader(Reader):
    """Reads CIFAR-10 or CIFAR-100, which are in `cifar.toml`.

    Attributes:
      folder: Of the files in the archive.
      files_of: By split, its files in order, each with the number of records in the original.
      labels: How many different values each label byte has; the last one is the class.
      class_names: In the order of the class.
    """

    name: str
    folder: str
    files_of: Mapping[str, Mapping[str, int]]
    labels: Sequence[int]
    class_names: Sequence[str]

    @property
    def record_bytes(self) -> int:
        """Bytes of labels and pixels of an image."""
        return len(self.labels) + _PIXELS

    @property
    def _names(self) -> list[str]:
        return [name for files in self.files_of.values() for name in files]

    def files(self, source: Paths) -> list[File]:
        """The files that `cut` and `open` read."""
        return list(self._find(source).values())

    def cut(self, source: Paths, *, pieces: int, piece_bytes: int) -> Cut:
        """Cuts a directory's files, which have any number of whole records; of an archive, the original only, a split is a piece."""
        found, cut = self._find(source), []
        for split, files in self.files_of.items():
            records = sum(files.values()) if "" in found else sum(self.records(found[name]) for name in files)
            count = 1 if "" in found else max(pieces, records * self.record_bytes // piece_bytes)
            cut += evenly(split, records, count=count, each_bytes=self.record_bytes)
        return Cut(pieces=tuple(cut), facts={"files": {name: dataclasses.asdict(file) for name, file in found.items()}})

    def open(self, cut: Cut) -> "CifarSource":
        """The records that were cut so."""
        return CifarSource(
            name=self.name,
            origin=f"{self.name.upper().replace('CIFAR', 'CIFAR-')}, original binary version",
            inputs=(image_feature((*_SHAPE[1:], _SHAPE[0])),),
            class_names=tuple(self.class_names),
            reader=self,
            files={name: File(**file) for name, file in cut.facts["files"].items()},
        )

    def records(self, file: File) -> int:
        """Records in a file of a directory, by its size."""
        records, rest = divmod(file.num_bytes, self.record_bytes)
        if rest or not records:
            raise UserError(
                f"{file.path}: {file.num_bytes} bytes, which is no positive number of whole records of "
                f"{self.record_bytes} bytes"
            )
        return records

    def _find(self, source: Paths) -> dict[str, File]:
        """The files by their names, or the archive by none."""
        place, archive = self.place(source, "PATH, its binary version: a directory or an archive")
        if archive:
            return {"": archive}
        folders, files = list_folder(place)
        if (inner := f"{place}/{self.folder}") in folders:
            files = list_folder(inner)[1]
        present = {file.path.rpartition("/")[2]: file for file in files}
        require(place, self._names, present)
        return {name: present[name] for name in self._names}

    def checked(self, content: bytes, place: str, first: int = 0) -> np.ndarray:
        """Records [N, record_bytes], whose labels are looked at; the first has that number."""
        if len(content) % self.record_bytes:
            raise UserError(f"{place}: cut short; {len(content)} bytes are no whole records of {self.record_bytes}")
        records = np.frombuffer(content, np.uint8).reshape(-1, self.record_bytes)
        for byte, values in enumerate(self.labels):
            if (wrong := records[:, byte] >= values).any():
                record = int(wrong.argmax())
                raise UserError(
                    f"{place}: record {first + record} has label {records[record, byte]}; "
                    f"{self.name} has labels 0 to {values - 1}"
                )
        return records


@dataclasses.dataclass(frozen=True, kw_only=True)
class CifarSource(Source):
    """The records of a directory or an archive."""

    reader: CifarReader
    files: Mapping[str, File]

    def blocks(self, piece: Piece) -> Iterator[Block]:
        """Reads the records of a piece."""
        labels, position = len(self.reader.labels), piece.position
        for records in self._archived(piece.split) if "" in self.files else self._stored(piece):
            # A view: the writer puts the bytes into their order while it copies them, a few records at a time.
            pixels = records[:, labels:].reshape(-1, *_SHAPE).transpose(0, 2, 3, 1)
            positions = np.arange(position, position := position + len(records))
            yield Block(positions=positions, columns={"image": pixels, LABEL: records[:, labels - 1]})

    def _stored(self, piece: Piece) -> Iterator[np.ndarray]:
        """The records of a piece of files in a directory, some at a time."""
        size = self.reader.record_bytes
        step, at = _BLOCK_BYTES // size, 0
        for file in (self.files[name] for name in self.reader.files_of[piece.split]):
            records = self.reader.records(file)
            first, last = max(piece.start - at, 0), min(piece.stop - at, records)
            at += records
            if first >= last:
                continue
            with readable(file.path), open_file(file, first * size, last * size) as stream:
                for start in range(first, last, step):
                    yield self.reader.checked(stream.read(min(step, last - start) * size), file.path, start)

    def _archived(self, split: str) -> list[np.ndarray]:
        """All records of a split in an archive, which has its members in whatever order."""
        archive, wanted, found = self.files[""], self.reader.files_of[split], {}
        try:
            with readable(archive.path), open_file(archive) as raw:
                unpack = _OPENERS.get(raw.peek(2)[:2], contextlib.nullcontext)
                with unpack(raw) as unpacked, tarfile.open(fileobj=unpacked, mode="r|") as tar:
                    for member in tar:
                        name = pathlib.PurePosixPath(member.name).name
                        if not member.isfile() or name not in wanted:
                            continue
                        if member.size != (due := wanted[name] * self.reader.record_bytes):
                            raise UserError(f"{archive.path}: {name} has {member.size} bytes; the original has {due}")
                        found[name] = self.reader.checked(tar.extractfile(member).read(), f"{archive.path}: {name}")
                    while unpacked.read(_BLOCK_BYTES):  # to its end, where the checksum is
                        pass
        except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
            raise UserError(f"{archive.path}: {error}") from None
        require(archive.path, wanted, found)
        return [found[name] for name in wanted]


def require(place: str, wanted: Sequence[str] | Mapping[str, int], present: Mapping[str, object]) -> None:
    """Refuses a place that lacks files of the binary version."""
    if missing := [name for name in wanted if name not in present]:
        archives = sorted(name for name in present if ".tar" in name or name.endswith(".tgz"))
        hint = f"; {archives[0]} is there: give it as --source if it is the binary version" if archives else ""
        raise UserError(f"{place}: missing {', '.join(missing)}; needed is the binary version{hint}")


CIFAR10, CIFAR100 = (
    CifarReader(name=name, **facts)
    for name, facts in tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text()).items()
)
