"""What reads a source."""

import abc
import collections
import hashlib
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence

from common.errors import UserError
from common.storage.files import list_folder, sha256_of, stat_file
from common.storage.storage import File, is_remote
from components.convert import pieces

Paths = str | Sequence[str] | None
_MOST_NAMES = 5  # in a line


class Reader(abc.ABC):
    """Reads one kind of source.

    Attributes:
      name: As given with `--dataset`.
      schema: What its files hold, or the file that says so; None where that is known, or not given.
      takes: Options that mean something to it, of `schema`, a file; `skip_bad`, how many rows may be wrong; `image_size`,
        height and width that a model gets of image files; `encoding`, how these are stored, `raw` or `source`;
        and `export_dir`, a folder of a bucket. A reader that takes any is a dataclass with a field for each,
        None if it is not given.
    """

    name: str
    takes: frozenset[str] = frozenset()
    schema: object = None

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
    def open(self, cut: pieces.Cut) -> pieces.Source:
        """The source that was cut so; done by each process that reads pieces of it, so nothing is read."""

    @abc.abstractmethod
    def files(self, source: Paths) -> list[File]:
        """The files that are read, in order, without the schema."""

    def digest(self, source: Paths) -> str:
        """SHA-256 (hexadecimal) over the schema, the contents of the files, and their paths from the folder of all of them."""
        files = self.files(source)
        root = os.path.commonpath([os.path.dirname(os.path.abspath(file.path)) for file in files] or ["/"])
        # A store knows checksums, which cost nothing.
        named = [(os.path.relpath(file.path, root), file.crc32c or sha256_of(file.path)) for file in files]
        return digest_of([*([("", sha256_of(self.schema))] if self.schema else []), *named])

    def places(self, source: Paths, wanted: str) -> list[tuple[str, File | None]]:
        """What `--source` gives, at least one path or address, each with the file that it is, None of a folder.

        If there is nothing at one, that is told, with what is wanted in words.
        """
        if not source:
            raise UserError(f"dataset {self.name!r} needs --source {wanted}")
        places = []
        for given in [source] if isinstance(source, str) else source:
            place = given.rstrip("/") if is_remote(given) else str(pathlib.Path(given))
            file = stat_file(place)
            if not file and not os.path.isdir(place) and not any(list_folder(place)):
                raise UserError(f"{place}: no such file or directory; dataset {self.name!r} needs --source {wanted}")
            places.append((place, file))
        return places

    def found(
        self, source: Paths, wanted: str, within: Callable[[str, bool], list[File]], *, print_others: bool = False
    ) -> list[File]:
        """The same for a reader of files, a folder standing for those that are found within it; others may be named."""
        places = self.places(source, wanted)
        return once([f for place, file in places for f in ([file] if file else within(place, print_others))])

    def place(self, source: Paths, wanted: str) -> tuple[str, File | None]:
        """The same for a reader that takes one path; more are an error too."""
        if source and not isinstance(source, str):
            raise UserError(f"--source {' '.join(source)}: dataset {self.name!r} takes one path, not {len(source)}")
        return self.places(source, wanted)[0]

    def directory(self, source: Paths, wanted: str) -> str:
        """The same for a reader that takes one directory; a file is an error too."""
        place, file = self.place(source, wanted)
        if file:
            raise UserError(f"{place}: no such directory; dataset {self.name!r} needs --source {wanted}")
        return place


def print_left_out(folder: str, names: Sequence[str], taken: str) -> None:
    """Names what is not read of a folder, in a line that says what is; of many a few."""
    if names:
        more = f" and {len(names) - _MOST_NAMES:,} more" * (len(names) > _MOST_NAMES)
        print(f"{folder}: left out: {', '.join(names[:_MOST_NAMES])}{more} ({taken})", flush=True)


def once(files: list[File]) -> list[File]:
    """Those files, if none is given twice or a link to nowhere."""
    paths = [file.path if is_remote(file.path) else os.path.abspath(file.path) for file in files]
    for path, times in collections.Counter(paths).items():
        if times > 1:
            raise UserError(f"{path}: is given more than once")
    return there(files)


def there(files: list[File]) -> list[File]:
    """Those files, if none is a link to nowhere."""
    if absent := [file.path for file in files if not file.version]:
        raise UserError(f"{absent[0]}: no such file")
    return files


def downloads_dir() -> pathlib.Path:
    """Where downloads are kept, in the user's cache (https://specifications.freedesktop.org/basedir-spec)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    cache = pathlib.Path(base if os.path.isabs(base) else "~/.cache").expanduser()
    return cache / "tfrecord-training-pipeline"


def digest_of(files: Iterable[tuple[str, str]]) -> str:
    """SHA-256 (hexadecimal) over names and checksums of contents, in this order."""
    digest = hashlib.sha256()
    for name, content in files:
        digest.update(f"{name}\0{content}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
