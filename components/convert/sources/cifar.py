"""The original binary files of CIFAR-10 and CIFAR-100, in a directory or still in their archive.

    source = CIFAR10.read("downloads/cifar-10-binary.tar.gz")
    source.splits["test"]["image"].shape      # (10000, 32, 32, 3)

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

from components.convert.images.pixels import image_source
from components.convert.source import Source
from components.convert.sources.base import Paths, Reader
from components.convert.sources.downloads import archive
from components.convert.writing.column_store import MEMORY, Store, fill
from trainer.base.errors import UserError, readable

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
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

    def files(self, source: Paths) -> list[pathlib.Path]:
        """The files that `read` reads."""
        path = self._path(source)
        return list(self._find(path).values()) if path.is_dir() else [path]

    def read(self, source: Paths, store: Store = MEMORY) -> Source:
        """Reads the set from a directory (any number of whole records a file) or an archive (the original only)."""
        path = self._path(source)
        if path.is_dir():
            paths = self._find(path)
            records = {file: self._records(path) for file, path in paths.items()}
            streams = self._opened(paths)
        else:
            records, streams = self._originals, self._members(path)
        parts, slots = {}, {}
        for split, files in self.files_of.items():
            ends = np.cumsum([records[file] for file in files])
            parts[split] = store.empty((int(ends[-1]), self._record_bytes), path)
            slots |= zip(files, np.split(parts[split], ends[:-1]), strict=True)
        try:
            with readable(path):
                for file, place, stream in streams:
                    self._fill(slots[file], place, stream)
        except archive.ERRORS as error:
            raise UserError(f"{path}: {error}") from None
        return image_source(
            {split: self._columns(part) for split, part in parts.items()},
            name=self.name,
            origin=f"{self.name.upper().replace('CIFAR', 'CIFAR-')}, original binary version",
            class_names=tuple(self.class_names),
        )

    def _path(self, source: Paths) -> pathlib.Path:
        return self.path(source, "PATH, its binary version: a directory or an archive")

    def _find(self, directory: pathlib.Path) -> dict[str, pathlib.Path]:
        inner = directory / self.folder
        present = {path.name: path for path in (inner if inner.is_dir() else directory).iterdir()}
        archives = sorted(name for name in present if ".tar" in name or name.endswith(".tgz"))
        hint = f"; {archives[0]} is there: give it as --source if it is the binary version" if archives else ""
        self._refuse_incomplete(directory, present, hint)
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

    def _records(self, path: pathlib.Path) -> int:
        """Records in a file of a directory, by its size."""
        records, rest = divmod(path.stat().st_size, self._record_bytes)
        if rest or not records:
            raise UserError(
                f"{path}: {path.stat().st_size} bytes, which is no positive number of whole records of "
                f"{self._record_bytes} bytes"
            )
        return records

    def _opened(self, paths: Mapping[str, pathlib.Path]) -> Iterator[tuple[str, str, IO[bytes]]]:
        """Of each file of a directory, its name, where it is and its content."""
        for file, path in paths.items():
            with open(path, "rb") as stream:
                yield file, str(path), stream

    def _members(self, path: pathlib.Path) -> Iterator[tuple[str, str, IO[bytes]]]:
        """The same of each data file in an archive, in whatever order it has them."""
        seen = set()
        most = sum(self._originals.values()) * self._record_bytes + _OVERHEAD_BYTES
        for name, size, stream in archive.members(path, most=most):
            self._refuse_pickles(path, {name})
            if name in self._originals:
                if name in seen:
                    raise UserError(f"{path}: holds {name} more than once")
                seen.add(name)
                if size != (due := self._originals[name] * self._record_bytes):
                    raise UserError(f"{path}: {name} has {size} bytes; the original has {due}")
                yield name, f"{path}: {name}", stream
        self._refuse_incomplete(path, seen)

    def _fill(self, slot: np.ndarray, place: str, stream: IO[bytes]) -> None:
        """Reads a file into the records [N, record_bytes] set aside for it, and looks at its labels."""
        if missing := fill(slot, stream):
            raise UserError(f"{place}: cut short; {missing} of {slot.nbytes} bytes are missing")
        for byte, values in enumerate(self.labels):
            if (wrong := slot[:, byte] >= values).any():
                record = int(wrong.argmax())
                raise UserError(
                    f"{place}: record {record} has label {slot[record, byte]}; {self.name} has labels 0 to {values - 1}"
                )

    def _columns(self, records: np.ndarray) -> dict[str, np.ndarray]:
        # A view: the writer puts the bytes into their order while it copies them, a few records at a time.
        pixels = records[:, len(self.labels) :].reshape(-1, *_SHAPE).transpose(0, 2, 3, 1)
        return {"image": pixels, "label": records[:, len(self.labels) - 1]}


CIFAR10, CIFAR100 = (
    CifarReader(name=name, **facts)
    for name, facts in tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text()).items()
)
