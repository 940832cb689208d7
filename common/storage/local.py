# ruff: noqa: D102 (`Storage` documents these methods)
"""Files of this machine, or of a file system that it mounts."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import stat
import uuid
from collections.abc import Iterator
from typing import IO, Any

from common.errors import UserError
from common.storage.storage import File, FileChangedError, Storage, Writer


class LocalStorage(Storage):
    """Implements `Storage` for local paths; errors of the operating system are `OSError`."""

    def stat(self, path: str) -> File | None:
        return _stat(path) if os.path.isfile(path) else None

    def list_folder(self, folder: str) -> tuple[list[str], list[File]]:
        paths = sorted(entry.path for entry in os.scandir(folder)) if os.path.isdir(folder) else []
        folders = list(filter(os.path.isdir, paths))
        files = map(_stat_if_exists, sorted({*paths} - {*folders}))
        return folders, list(filter(None, files))

    def list(self, folder: str, *, follow_links: bool = True) -> list[File]:
        return list(filter(None, map(_stat_if_exists, sorted(_walk(folder, follow_links)))))

    def open(self, file: File, start: int, stop: int) -> io.RawIOBase:
        return _Reader(file, start, stop)

    def read(self, path: str, max_bytes: int | None) -> tuple[bytes, str] | None:
        try:
            with open(path, "rb") as file:
                return file.read(max_bytes), _stat(file.fileno()).version
        except (FileNotFoundError, NotADirectoryError):
            return None

    def delete(self, path: str, *, if_version: str | None = None) -> None:
        if if_version is None or (os.path.isfile(path) and _stat(path).version == if_version):
            pathlib.Path(path).unlink(missing_ok=True)

    def _open_temporary(self, path: str) -> IO[bytes]:
        # Where a file stands in place of a folder, opening below fails with a clearer message.
        with contextlib.suppress(FileExistsError):
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        return open(f"{path}.{uuid.uuid4().hex}.tmp", "xb")

    def _publish(self, temporary: IO[bytes], file: File, writer: Writer) -> str:
        temporary.flush()
        if writer.durable:
            os.fsync(temporary.fileno())
        version = _stat(temporary.fileno()).version
        temporary.close()  # A network file system sends the content on closing.
        (os.replace if writer.if_version is None else os.link)(temporary.name, file.path)
        return version

    def _discard(self, temporary: IO[bytes]) -> None:
        try:
            temporary.close()  # This writes what is buffered, so it fails on a full disk.
        finally:
            pathlib.Path(temporary.name).unlink(missing_ok=True)


class _Reader(io.FileIO):
    """Unbuffered reader of a listed file from `start`; the operating system reads ahead.

    A read that begins before `stop` goes no further than that; others may read what follows.
    Opening and reading raise a `FileChangedError` if the file is not the listed version any more.
    """

    # These read by `readinto` below, unlike the methods of `FileIO`.
    read, readall = io.RawIOBase.read, io.RawIOBase.readall  # type: ignore[assignment]

    def __init__(self, file: File, start: int, stop: int) -> None:
        self._listed = file
        self._stop = stop
        try:
            super().__init__(file.path)
        except FileNotFoundError:
            raise FileChangedError(file.path) from None
        self.seek(start)

    def readinto(self, buffer: Any) -> int:
        if _stat(self.fileno()).version != self._listed.version:
            raise FileChangedError(self._listed.path)
        # Reads no further than `stop` at once: other readers probably read what follows.
        left = self._stop - self.tell()
        return super().readinto(memoryview(buffer)[:left] if left > 0 else buffer)


def _stat(path: str | int) -> File:
    """Returns the file of a path (links are followed) or of a descriptor, whose path is its number.

    Raises:
      OSError: If there is none, or it cannot be looked up.
    """
    status = os.stat(path)
    return File(
        path=str(path),
        num_bytes=status.st_size,
        version=str(status.st_mtime_ns),
        updated_s=status.st_mtime,
        changed_ns=status.st_ctime_ns,
        is_special=not stat.S_ISREG(status.st_mode),
    )


def _stat_if_exists(path: str) -> File | None:
    """Returns a file that was listed a moment ago; None if it was deleted or renamed since.

    A link that leads nowhere, or whose target cannot be read, is a file without a version.

    Raises:
      OSError: If a path that is no link cannot be looked up for another reason.
    """
    try:
        return _stat(path)
    except OSError as error:
        if os.path.islink(path):
            return File(path=path, num_bytes=0)
        if isinstance(error, FileNotFoundError):
            return None
        raise


def _walk(folder: str, follow_links: bool) -> Iterator[str]:
    """Yields the paths of all files below a folder, in no certain order; none if it is missing.

    Raises:
      UserError: If links lead to one folder twice.
      OSError: If a folder exists and cannot be read.
    """
    path_of: dict[str, str] = {}  # First path of each folder, by its path without links.
    for inner, _, names in os.walk(folder, onerror=_raise_unless_gone, followlinks=follow_links):
        first = path_of.setdefault(os.path.realpath(inner), inner)
        if first != inner:
            raise UserError(
                f"{inner}: is the same folder as {first}; delete the link to it, or give the "
                "files to read"
            )
        yield from (os.path.join(inner, name) for name in names)


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error  # Otherwise nobody would notice that the files of this folder are missing.
