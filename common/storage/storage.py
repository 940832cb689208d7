"""The interface `Storage` of file systems: the local one or a bucket, chosen by a path's scheme.

    storage = storage_of("gs://bucket/data")
    storage.list("gs://bucket/data")      # [File(path="gs://bucket/data/a", num_bytes=7, ...), ...]
    with storage.create("gs://bucket/data/b") as file:
        file.write(b"...")                # the file appears when the block ends without an error

`common.storage.files` has functions that find the storage themselves.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import io
import os
import pkgutil
from collections.abc import Callable, Iterable
from concurrent import futures
from typing import IO, Any, Self

import google_crc32c

from common.errors import UserError

MAX_THREADS = 16
_CHUNK_BYTES = 1 << 20
Path = str | os.PathLike[str]

# Storages by scheme; each is imported with the first path that needs it.
IMPLEMENTATIONS = {"": "common.storage.local:LocalStorage", "gs": "common.storage.bucket:Bucket"}


class FileChangedError(UserError):
    """A file was replaced or deleted after it was listed."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path}: it has changed or gone since it was looked at; start again when nobody "
            "writes it"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """A file as it was listed.

    Attributes:
      path: Local path or `gs://` address.
      num_bytes: Size.
      version: Text that differs whenever the file is written: an object's generation, or the time
        of a local file's last change in nanoseconds. Empty if it is not known, and for a link that
        leads nowhere.
      crc32c: CRC-32C of the content, 8 hexadecimal digits; empty if it could be found only by
        reading the file.
      updated_s: Time of the last change, in seconds since 1970.
      changed_ns: Time, in nanoseconds since 1970, at which this machine noted the last change of a
        local file, which no program can set back; 0 in a bucket.
      is_special: True for a local file that is not a regular one, such as a FIFO, on which a reader
        could block for ever.
    """

    path: str
    num_bytes: int
    version: str = ""
    crc32c: str = ""
    updated_s: float = dataclasses.field(default=0.0, compare=False)
    changed_ns: int = dataclasses.field(default=0, compare=False)
    is_special: bool = dataclasses.field(default=False, compare=False)


class Storage(abc.ABC):
    """Files by path. For every reader a file is complete or absent, even after its writer crashed.

    All methods of a remote storage raise `UserError` for what it refuses (an unknown bucket, no
    permission), and `ConnectionError` if it does not answer after its client's retries. Those of
    the local one raise the operating system's `OSError`.
    """

    @abc.abstractmethod
    def stat(self, path: str) -> File | None:
        """Returns the file of a path; None if there is none, as for a folder or a FIFO."""

    @abc.abstractmethod
    def list_folder(self, folder: str) -> tuple[list[str], list[File]]:
        """Returns the paths of folders and the files directly in a folder, each sorted by path.

        All paths begin with `folder`. Both lists are empty if there is no such folder.
        """

    @abc.abstractmethod
    def list(self, folder: str, *, follow_links: bool = True) -> list[File]:
        """Returns all files below a folder, sorted by path; none if there is no such folder.

        Args:
          folder: Path, with or without a slash at its end.
          follow_links: Whether to descend into linked folders.

        Raises:
          UserError: If links lead to one folder twice.
        """

    @abc.abstractmethod
    def open(self, file: File, start: int, stop: int) -> io.RawIOBase:
        """Opens a listed file for reading at a position, without a buffer.

        Args:
          file: File as it was listed.
          start: Offset at which reading begins.
          stop: Offset up to which the file is read ahead; with 0, `read` reads only the bytes that
            are requested.

        Raises:
          FileChangedError: From here or from reading, if the file is not the listed version any
            more.
        """

    @abc.abstractmethod
    def read(self, path: str, max_bytes: int | None) -> tuple[bytes, str] | None:
        """Returns the content and the version of a file, with one request; None if there is none.

        Args:
          path: Path of the file.
          max_bytes: Number of bytes after which the content is cut off; None for all.
        """

    def crc32c(self, file: File) -> str:
        """Returns the CRC-32C of a listed file, 8 hexadecimal digits.

        A bucket knows it; a local file is read.

        Raises:
          FileChangedError: If a file that is read is not the listed version any more.
        """
        if file.crc32c:
            return file.crc32c
        checksum = google_crc32c.Checksum()
        with self.open(file, 0, file.num_bytes) as data:
            for _ in checksum.consume(data, _CHUNK_BYTES):
                pass
        return checksum.hexdigest().decode()

    def create(self, path: str, **options: Any) -> Writer:
        """Begins to write a file; missing folders are created.

        Args:
          path: Path of the file.
          **options: Attributes of `Writer`.

        Raises:
          OSError: If a local file cannot be created.
        """
        return Writer(path, storage=self, **options)

    @abc.abstractmethod
    def delete(self, path: str, *, if_version: str | None = None) -> None:
        """Deletes a file, if it exists and, with `if_version`, has that version."""

    @abc.abstractmethod
    def _open_temporary(self, path: str) -> IO[bytes]:
        """Opens the file that takes what is written until it is published under `path`."""

    @abc.abstractmethod
    def _publish(self, temporary: IO[bytes], file: File, writer: Writer) -> str:
        """Makes the file appear under its path, and returns its version.

        Raises:
          FileExistsError: If the writer's `if_version` does not hold, or is given and a local file
            exists.
        """

    def _discard(self, temporary: IO[bytes]) -> None:
        """Closes the temporary file, and deletes it if it still exists."""
        temporary.close()


@dataclasses.dataclass(kw_only=True)
class Writer:
    """A file that is being written; it appears under its path, complete, when `close` returns.

    As a context manager it closes at the end of the block, or discards everything after an error.

    Attributes:
      path: Path; a file there is replaced.
      storage: Storage of the path.
      if_version: Version of the file to replace, or "" if there must be none; None replaces any. A
        local file is never replaced unless this is None.
      durable: Whether a local file is to survive a loss of power, which takes longer to write.
      timeout_s: Sends the file to a store once, for at most so many seconds; None tries again for
        minutes.
      file: The file that was written, after `close`.
    """

    path: str = dataclasses.field(kw_only=False)
    storage: Storage
    if_version: str | None = None
    durable: bool = True
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        self._temporary = self.storage._open_temporary(self.path)
        self._checksum = google_crc32c.Checksum()
        self._num_bytes = 0

    def write(self, content: Any) -> None:
        """Appends bytes, or the bytes of a contiguous array."""
        self._checksum.update(content)
        self._num_bytes += self._temporary.write(content)

    def close(self) -> File:
        """Makes the file appear, and returns it, without its times.

        Raises:
          FileExistsError: If `if_version` does not hold, or is given and a local file exists; but
            not if the file that exists has the same content.
          UserError: If a store refuses the request.
          OSError: If the file cannot be written, or a store does not answer.
        """
        crc32c = self._checksum.hexdigest().decode()
        self.file = File(path=self.path, num_bytes=self._num_bytes, crc32c=crc32c)
        try:
            version = self.storage._publish(self._temporary, self.file, self)
        except FileExistsError:
            # Another process has written it, or a request of our own whose answer was lost.
            existing = self.storage.stat(self.path)
            if not existing or self.storage.crc32c(existing) != crc32c:
                raise
            version = existing.version
        finally:
            self.abandon()
        self.file = dataclasses.replace(self.file, version=version)
        return self.file

    def abandon(self) -> None:
        """Discards what was written; nothing appears under the path."""
        self.storage._discard(self._temporary)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind:
            self.abandon()
        else:
            self.close()


def is_remote(path: Path) -> bool:
    """Returns whether a path has a scheme, such as `gs://`.

    In a store every request takes time, and files cannot be renamed.
    """
    return "://" in os.fspath(path)


def storage_of(path: Path) -> Storage:
    """Returns the storage of a path, by its scheme.

    Raises:
      UserError: If the scheme is unknown.
    """
    scheme, separator, _ = os.fspath(path).partition("://")
    return _implementation(scheme if separator else "")


@functools.cache
def _implementation(scheme: str) -> Storage:
    if scheme not in IMPLEMENTATIONS:
        raise UserError(
            f"{scheme}:// is no storage that this program knows; use a local path or "
            "gs://BUCKET/NAME"
        )
    return pkgutil.resolve_name(IMPLEMENTATIONS[scheme])()


def map_in_threads(call: Callable[..., Any], *items: Iterable[Any]) -> list[Any]:
    """Returns the list of `map(call, *items)`, made by 16 threads.

    The first error, in the order of the items, is raised; calls that have not begun by then are
    cancelled.
    """
    with futures.ThreadPoolExecutor(MAX_THREADS) as pool:
        try:
            return list(pool.map(call, *items))
        finally:
            pool.shutdown(cancel_futures=True)
