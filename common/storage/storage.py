"""The interface `Storage` of what keeps files: a local file system or a bucket, chosen by a path's scheme.

storage = storage_of("gs://bucket/data")
storage.list("gs://bucket/data")                     # [File(path="gs://bucket/data/a", num_bytes=7,
...), ...] with storage.create("gs://bucket/data/b") as file:   # the file appears when the block
ends without an error
    file.write(b"...")

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

# By scheme. A client of a store is imported with the first path that needs it.
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
      version: Differs whenever the file is written: an object's generation, or the nanosecond of a
        local file's last change; empty for a link to nowhere, and for a file that was written but
        not listed.
      crc32c: CRC-32C of the content, 8 hexadecimal digits; empty where only reading it would tell.
      updated_s: Time of the last change, in seconds since 1970.
      changed_ns: When this machine noted the last change of a local file, which nobody can set
        back; else 0.
      is_special: Whether a local file is no regular one, but a FIFO, say, that could be waited for
        for ever.
    """

    path: str
    num_bytes: int
    version: str = ""
    crc32c: str = ""
    updated_s: float = dataclasses.field(default=0.0, compare=False)
    changed_ns: int = dataclasses.field(default=0, compare=False)
    is_special: bool = dataclasses.field(default=False, compare=False)


class Storage(abc.ABC):
    """Files by path. A file is complete or absent for every reader, also after a crash of its writer.

    All methods raise `UserError` for what the storage refuses (an unknown bucket, no permission),
    and `ConnectionError` if it does not answer after its client's retries.
    """

    @abc.abstractmethod
    def stat(self, path: str) -> File | None:
        """Returns the file of a path; None if there is none, or if it is a folder."""

    @abc.abstractmethod
    def list(self, folder: str, *, follow_links: bool = True) -> list[File]:
        """Returns the files below a folder, sorted by path; none if there is no such folder.

        Args:
          folder: Path, with or without a slash at its end.
          follow_links: Whether to descend into linked folders.

        Raises:
          UserError: If links lead to one folder twice.
        """

    @abc.abstractmethod
    def list_folder(self, folder: str) -> tuple[list[str], list[File]]:
        """Returns the folders and files directly in a folder, sorted by path; none if there is no such folder."""

    @abc.abstractmethod
    def open(self, file: File, start: int, stop: int) -> io.RawIOBase:
        """Opens a listed file at a position.

        Args:
          file: As it was listed.
          start: Offset at which reading begins.
          stop: Offset up to which is read ahead; with 0, `read` reads no byte but those that are
            asked for.

        Raises:
          FileChangedError: From here or from `read`, if the file is not the listed one any more.
        """

    @abc.abstractmethod
    def read(self, path: str, max_bytes: int | None) -> tuple[bytes, str] | None:
        """Returns the content of a file, at most `max_bytes`, and its version; None if there is none. One request."""

    def crc32c(self, file: File) -> str:
        """Returns the CRC-32C of a listed file, 8 hexadecimal digits, which a store knows without reading it."""
        if file.crc32c:
            return file.crc32c
        checksum = google_crc32c.Checksum()
        with self.open(file, 0, file.num_bytes) as data:
            for _ in checksum.consume(data, _CHUNK_BYTES):
                pass
        return checksum.hexdigest().decode()

    def create(self, path: str, **options: Any) -> Writer:
        """Begins to write a file, in folders that are made where they do not exist; `options` are those of `Writer`."""
        return Writer(path, storage=self, **options)

    @abc.abstractmethod
    def delete(self, path: str, *, if_version: str | None = None) -> None:
        """Deletes a file, unless it does not exist or has another version than `if_version`."""

    @abc.abstractmethod
    def _open_temporary(self, path: str) -> IO[bytes]:
        """Opens the file that takes what is written until it is published under `path`."""

    @abc.abstractmethod
    def _publish(self, temporary: IO[bytes], file: File, writer: Writer) -> str:
        """Makes the file appear, and returns its version; raises `FileExistsError` if `if_version` does not hold."""

    def _discard(self, temporary: IO[bytes]) -> None:
        """Closes the temporary file, and deletes it if it is still there."""
        temporary.close()


@dataclasses.dataclass(kw_only=True)
class Writer:
    """A file that is being written; it appears under its path when `close` returns, complete.

    Attributes:
      path: Path; a file there is replaced.
      storage: Where that is.
      if_version: Version that is to be replaced, or "" for a path without a file. A local file is
        never replaced then.
      durable: Whether the file survives a loss of power, which takes longer to write.
      timeout_s: Tries once, for so long, where a store would else be asked again for minutes.
      file: What was written, after `close`.
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
        """Appends bytes, or a contiguous array."""
        self._checksum.update(content)
        self._num_bytes += self._temporary.write(content)

    def close(self) -> File:
        """Makes the file appear, and returns it.

        Raises:
          FileExistsError: If `if_version` does not hold and the file that is there has another
            content.
        """
        crc32c = self._checksum.hexdigest().decode()
        self.file = File(path=self.path, num_bytes=self._num_bytes, crc32c=crc32c)
        try:
            version = self.storage._publish(self._temporary, self.file, self)
        except FileExistsError:
            # Another process, or a request of ours whose answer was lost, has written it.
            existing = self.storage.stat(self.path)
            if not existing or self.storage.crc32c(existing) != crc32c:
                raise
            version = existing.version
        finally:
            self.abandon()
        self.file = dataclasses.replace(self.file, version=version)
        return self.file

    def abandon(self) -> None:
        """Discards what was written."""
        self.storage._discard(self._temporary)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind:
            self.abandon()
        else:
            self.close()


def is_remote(path: Path) -> bool:
    """Returns whether a path lies in a store, where every request takes time and nothing can be renamed."""
    return "://" in os.fspath(path)


def storage_of(path: Path) -> Storage:
    """Returns the storage of a path, by its scheme."""
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
    """Returns `map(call, *items)`, many calls at once; after a failure no further one begins."""
    with futures.ThreadPoolExecutor(MAX_THREADS) as pool:
        try:
            return list(pool.map(call, *items))
        finally:
            pool.shutdown(cancel_futures=True)
