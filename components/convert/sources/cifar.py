"""The original binary files of CIFAR-10 and CIFAR-100, in a directory or still in their archive.

    cut = CIFAR10.cut("downloads/cifar-10-binary.tar.gz", pieces=8, piece_bytes=1 << 26)
    block = next(CIFAR10.open(cut).blocks(cut.pieces[0]))
    block.columns["image"].shape      # (N, 32, 32, 3)

A record is the label (CIFAR-100: the coarse label, then the fine one, which is ours), then 1,024 red, 1,024 green and
1,024 blue bytes (https://www.cs.toronto.edu/~kriz/cifar.html). Pixels leave here as height, width, channel.

The pickles of the Python version are never loaded.
"""

import dataclasses
import pathlib
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO

import numpy as np

from components.convert.images.pixels import image_feature
from components.convert.pieces import Block, Cut, Piece, Source, evenly
from components.convert.sources.base import Paths, Reader, fill
from components.convert.sources.downloads import archive
from components.convert.writing.label_feature import LABEL
from components.files.listing import File, inside
from components.files.reading import opened
from trainer.base.errors import UserError, readable

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_BLOCK_BYTES = 1 << 21  # of records that are read at once
_OVERHEAD_BYTES = 1 << 20  # of an archive: headers, padding, the small text files beside the data


@dataclasses.dataclass(frozen=True, kw_only=True)
class CifarReader(Reader):
    """Reads CIFAR-10 or CIFAR-100, which are in `cifar.toml`.

    Attributes:
      folder: Of the files in the archive.
      files_of: By split, its files in order, each with the number of records in the original.
      labels: How many different values each label byte has; the last one is the class.
      class_names: In the order of the class.
      pickled: Names that only the Python version has.
    """

    name: str
    folder: str
    files_of: Mapping[str, Mapping[str, int]]
    labels: Sequence[int]
    class_names: Sequence[str]
    pickled: Collection[str]

    @property
    def _record_bytes(self) -> int:
        return len(self.labels) + _PIXELS

    @property
    def _originals(self) -> dict[str, int]:
        return {file: records for files in self.files_of.values() for file, records in files.items()}

    def files(self, source: Paths) -> list[File]:
        """The files that `cut` and `open` read."""
        place, archive = self._place(source)
        return [archive] if archive else list(self._find(place).values())

    def cut(self, source: Paths, *, pieces: int, piece_bytes: int) -> Cut:
        """Cuts a directory's files, which have any number of whole records; of an archive, the original only, a split is a piece."""
        place, archive = self._place(source)
        found = {} if archive else self._find(place)
        records = self._originals if archive else {name: self._records(file) for name, file in found.items()}
        cut = []
        for split, files in self.files_of.items():
            total = sum(records[file] for file in files)
            count = 1 if archive else max(pieces, total * self._record_bytes // piece_bytes)
            cut += evenly(split, total, count=count, each_bytes=self._record_bytes)
        files = {name: dataclasses.asdict(file) for name, file in (found or {"": archive}).items()}
        return Cut(pieces=tuple(cut), facts={"files": files})

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

    def _place(self, source: Paths) -> tuple[str, File | None]:
        return self.place(source, "PATH, its binary version: a directory or an archive")

    def _find(self, directory: str) -> dict[str, File]:
        folders, files = inside(directory)
        if (inner := f"{directory}/{self.folder}") in folders:
            folders, files = inside(inner)
        present = {file.path.rpartition("/")[2]: file for file in files}
        archives = sorted(name for name in present if ".tar" in name or name.endswith(".tgz"))
        hint = f"; {archives[0]} is there: give it as --source if it is the binary version" if archives else ""
        self._refuse_incomplete(
            directory, [*present, *({folder.rpartition("/")[2] for folder in folders} & {*self.pickled})], hint
        )
        return {file: present[file] for file in self._originals}

    def _refuse_incomplete(self, place: object, present: Collection[str], hint: str = "") -> None:
        if missing := [file for file in self._originals if file not in present]:
            self._refuse_pickles(place, present)
            raise UserError(f"{place}: missing {', '.join(missing)}{hint}")

    def _refuse_pickles(self, place: object, present: Collection[str]) -> None:
        if pickles := sorted(set(present).intersection(self.pickled)):
            raise UserError(
                f"{place}: {pickles[0]!r} is of the Python version, pickles, which are never loaded; "
                f"get the binary version of {self.name} (*-binary.tar.gz)"
            )

    def _records(self, file: File) -> int:
        """Records in a file of a directory, by its size."""
        records, rest = divmod(file.num_bytes, self._record_bytes)
        if rest or not records:
            raise UserError(
                f"{file.path}: {file.num_bytes} bytes, which is no positive number of whole records of "
                f"{self._record_bytes} bytes"
            )
        return records

    def stored(self, files: Mapping[str, File], piece: Piece) -> Iterator[np.ndarray]:
        """The records [N, record_bytes] of a piece of files in a directory, some at a time."""
        step, at = _BLOCK_BYTES // self._record_bytes, 0
        for file in (files[name] for name in self.files_of[piece.split]):
            records = self._records(file)
            first, last = max(piece.start - at, 0), min(piece.stop - at, records)
            at += records
            if first >= last:
                continue
            with readable(file.path), opened(file, first * self._record_bytes, last * self._record_bytes) as stream:
                for start in range(first, last, step):
                    yield self._filled(min(step, last - start), file.path, stream, start)

    def archived(self, file: File, split: str) -> Iterator[np.ndarray]:
        """All records of a split in an archive, which has its members in whatever order."""
        path = file.path
        seen: dict[str, np.ndarray | None] = {}
        most = sum(self._originals.values()) * self._record_bytes + _OVERHEAD_BYTES
        try:
            with readable(path):
                for name, size, stream in archive.members(file, most=most):
                    self._refuse_pickles(path, {name})
                    if name not in self._originals:
                        continue
                    if name in seen:
                        raise UserError(f"{path}: holds {name} more than once")
                    if size != (due := self._originals[name] * self._record_bytes):
                        raise UserError(f"{path}: {name} has {size} bytes; the original has {due}")
                    ours = name in self.files_of[split]
                    seen[name] = self._filled(self._originals[name], f"{path}: {name}", stream, 0) if ours else None
        except archive.ERRORS as error:
            raise UserError(f"{path}: {error}") from None
        self._refuse_incomplete(path, seen)
        return (seen[name] for name in self.files_of[split])

    def _filled(self, count: int, place: str, stream: IO[bytes], first: int) -> np.ndarray:
        """So many records [N, record_bytes] of a stream, whose labels are looked at; the first has that number."""
        records = np.empty((count, self._record_bytes), np.uint8)
        if missing := fill(records, stream):
            raise UserError(f"{place}: cut short; {missing} of {records.nbytes} bytes are missing")
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
        if archive := self.files.get(""):
            found = self.reader.archived(archive, piece.split)
        else:
            found = self.reader.stored(self.files, piece)
        labels, position = len(self.reader.labels), piece.position
        for records in found:
            # A view: the writer puts the bytes into their order while it copies them, a few records at a time.
            pixels = records[:, labels:].reshape(-1, *_SHAPE).transpose(0, 2, 3, 1)
            positions = np.arange(position, position := position + len(records))
            yield Block(positions=positions, columns={"image": pixels, LABEL: records[:, labels - 1]})


CIFAR10, CIFAR100 = (
    CifarReader(name=name, **facts)
    for name, facts in tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text()).items()
)
