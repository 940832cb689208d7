"""What reads a source."""

import abc
import collections
import hashlib
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import IO

import numpy as np

from components.convert import pieces
from components.files.listing import File, of_path
from trainer.base.errors import UserError
from trainer.base.files import digest_of as digest_of_file
from trainer.base.files import is_remote

_READ_BYTES = 1 << 20
Paths = str | Sequence[str] | None


class Reader(abc.ABC):
    """Reads one kind of source.

    Attributes:
      name: As given with `--dataset`.
      takes: Options that mean something to it, of `schema`, a file; `skip_bad`, how many rows may be wrong; `image_size`,
        height and width that a model gets of image files; `encoding`, how these are stored, `raw` or `source`;
        `download_dir`; and `export_dir`, a folder of a bucket. A reader that takes any is a dataclass with a field for each,
        None if it is not given.
    """

    name: str
    takes: frozenset[str] = frozenset()

    @abc.abstractmethod
    def cut(self, source: Paths, *, pieces: int, piece_bytes: int) -> pieces.Cut:
        """Lists what there is and cuts it, without reading more of it than that takes.

        Args:
          source: Where it is.
          pieces: How many pieces the training split has at least, if it can be cut anywhere: at `i * extent // pieces`.
          piece_bytes: A piece has about so many bytes at most, if it can be cut finer.

        Raises:
          UserError: If the source is missing, or is not what it should be.
        """

    @abc.abstractmethod
    def open(self, source: Paths, cut: pieces.Cut) -> pieces.Source:
        """The source that was cut so; done by each process that reads pieces of it, so nothing is read."""

    @abc.abstractmethod
    def files(self, source: Paths) -> list[pathlib.Path]:
        """The files that are read, in order, without the schema."""

    def listed(self, source: Paths) -> list[File]:
        """The same with what tells whether they change."""
        return [of_path(str(path)) for path in self.files(source)]

    def digest(self, source: Paths) -> str:
        """SHA-256 (hexadecimal) over the schema, the contents of the files, and their paths from the folder of all of them."""
        files, schema = self.listed(source), getattr(self, "schema", None)
        root = os.path.commonpath([os.path.dirname(os.path.abspath(file.path)) for file in files] or ["/"])
        # A store knows checksums, which cost nothing.
        named = [(os.path.relpath(file.path, root), file.crc32c or digest_of_file(file.path)) for file in files]
        return digest_of([*([("", digest_of_file(schema))] if schema else []), *named])

    def paths(self, source: Paths, wanted: str) -> list[pathlib.Path]:
        """What `--source` gives, at least one path; `wanted` says what it has to be, in words.

        Raises:
          UserError: If it gives nothing, or what is not there.
        """
        if not source:
            raise UserError(f"dataset {self.name!r} needs --source {wanted}")
        given = [source] if isinstance(source, str) else source
        if remote := [path for path in given if is_remote(path)]:
            raise UserError(
                f"{remote[0]}: dataset {self.name!r} is read from this machine; copy it, or mount the bucket"
            )
        paths = [pathlib.Path(path) for path in given]
        if absent := [path for path in paths if not path.exists()]:
            raise UserError(f"{absent[0]}: no such file or directory; dataset {self.name!r} needs --source {wanted}")
        return paths

    def inside(
        self, source: Paths, wanted: str, found_in: Callable[[pathlib.Path], list[pathlib.Path]]
    ) -> list[pathlib.Path]:
        """The same for a reader of files, a directory standing for those that are found in it."""
        files = []
        for path in self.paths(source, wanted):
            files += found_in(path) if path.is_dir() else [path]
        for path, times in collections.Counter(map(os.path.abspath, files)).items():
            if times > 1:
                raise UserError(f"{path}: is given more than once")
            if not os.path.isfile(path):
                raise UserError(f"{path}: no such file")
        return files

    def path(self, source: Paths, wanted: str) -> pathlib.Path:
        """The same for a reader that takes one path; more are an error too."""
        if source and not isinstance(source, str):
            raise UserError(f"--source {' '.join(source)}: dataset {self.name!r} takes one path, not {len(source)}")
        return self.paths(source, wanted)[0]

    def directory(self, source: Paths, wanted: str) -> pathlib.Path:
        """The same for a reader that takes one directory; anything else is an error too."""
        if not (path := self.path(source, wanted)).is_dir():
            raise UserError(f"{path}: no such directory; dataset {self.name!r} needs --source {wanted}")
        return path


def fill(array: np.ndarray, stream: IO[bytes]) -> int:
    """Fills an array with a stream's bytes, as many as there are; returns how many are missing."""
    due = memoryview(array).cast("B")
    while due and (got := stream.readinto(due[:_READ_BYTES])):  # a decompressor holds what is asked for once more
        due = due[got:]
    return len(due)


def files_below(directory: pathlib.Path) -> list[pathlib.Path]:
    """What lies in a directory and its folders and is none itself, in order; links to nowhere too, for who reads them."""

    def refuse(error: OSError) -> None:
        raise error  # where a folder cannot be read, files would be missed by nobody

    walk = os.walk(directory, onerror=refuse)
    return sorted(pathlib.Path(folder, name) for folder, _, names in walk for name in names)


def downloads_dir(given: str | None) -> pathlib.Path:
    """Where downloads are kept: in the user's cache (https://specifications.freedesktop.org/basedir-spec) if not given."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    cache = pathlib.Path(base if os.path.isabs(base) else "~/.cache").expanduser()
    return pathlib.Path(given) if given else cache / "tfrecord-training-pipeline"


def digest_of(files: Iterable[tuple[str, str]]) -> str:
    """SHA-256 (hexadecimal) over names and checksums of contents, in this order."""
    digest = hashlib.sha256()
    for name, content in files:
        digest.update(f"{name}\0{content}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
