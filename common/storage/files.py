"""Functions on files by path, in any storage; `common.storage.storage` has the contract.

    write_text("gs://bucket/notes/7.json", "{}")
    read_json("gs://bucket/notes/7.json")                       # {}
    with open_file(file, start=1 << 30, stop=2 << 30) as data:  # a file as it was listed, or a path
        data.read(4096), data.seek(0), data.tell()

All of them raise a `UserError` if a store refuses a request, and a `ConnectionError` if it does not
answer. Errors of the local file system are `OSError`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import google_crc32c

from common import documents
from common.errors import UserError, reading
from common.storage.storage import MAX_THREADS, File, Path, is_remote, map_in_threads, storage_of

if TYPE_CHECKING:
    # At run time NumPy would start threads, before a replica has blocked signals in its own.
    import numpy as np

_BUFFER_BYTES = 64 << 10
_CHUNK_BYTES = 1 << 20


def stat_file(path: Path) -> File | None:
    """Returns the file of a path; None if there is none, as for a folder or a FIFO.

    Raises:
      UserError: If the store refuses the request.
      ConnectionError: If the store does not answer.
    """
    return storage_of(path).stat(os.fspath(path))


def list_files(path: Path, *, follow_links: bool = True) -> list[File]:
    """Returns the file of a path, or all files below the folder of that path, sorted by path.

    The list is empty if there is neither.

    Args:
      path: File or folder.
      follow_links: Whether to descend into linked folders.

    Raises:
      UserError: If links lead to one folder twice, or the store refuses the request.
      ConnectionError: If the store does not answer.
      OSError: If a local folder cannot be read.
    """
    file = stat_file(path)
    return [file] if file else storage_of(path).list(os.fspath(path), follow_links=follow_links)


def list_folder(folder: Path) -> tuple[list[str], list[File]]:
    """Returns the paths of folders and the files directly in a folder, each sorted by path.

    All paths begin with `folder`. Both lists are empty if there is no such folder.

    Raises:
      UserError: If the store refuses the request.
      ConnectionError: If the store does not answer.
      OSError: If a local folder cannot be read.
    """
    return storage_of(folder).list_folder(os.fspath(folder))


def flush(path: Path) -> None:
    """Waits until a local file survives a loss of power.

    Raises:
      OSError: If the file cannot be opened, or its content cannot be written to the disk.
    """
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def open_file(place: File | Path, start: int = 0, stop: int | None = None) -> io.BufferedReader:
    """Opens a file for reading at a position.

    Args:
      place: Path, or a file as it was listed.
      start: Offset at which reading begins.
      stop: Offset up to which the file is read ahead, by default its end. What follows can be read
        too.

    Raises:
      FileNotFoundError: If there is no file of this path.
      FileChangedError: From here or from reading, if the file is not the listed version any more.
      UserError: If the store refuses a request.
      ConnectionError: If the store does not answer.
      OSError: If a local file cannot be read.
    """
    file = require_file(place)
    stop = file.num_bytes if stop is None else stop
    raw = storage_of(file.path).open(file, start, stop)
    return io.BufferedReader(raw, _BUFFER_BYTES)


def open_files(files: Sequence[File], stop: int | None = None) -> Iterator[io.BufferedReader]:
    """Opens listed files one after another; in a bucket, 16 of them at once.

    Args:
      files: Files of one storage.
      stop: Offset up to which each file is read ahead, by default its end.

    Yields:
      A reader of each file, in the order of `files`; the caller closes it.

    Raises:
      FileChangedError: If a file is not the listed version any more.
      UserError: If the store refuses a request.
      ConnectionError: If the store does not answer.
      OSError: If a local file cannot be read.
    """

    def open_and_fetch(file: File) -> io.BufferedReader:
        data = open_file(file, stop=stop)
        data.peek(1)
        return data

    for first in range(0, len(files), MAX_THREADS):
        batch = files[first : first + MAX_THREADS]
        run = map_in_threads if is_remote(batch[0].path) else map
        yield from run(open_and_fetch, batch)


def read_bytes(path: Path, max_bytes: int | None = None) -> bytes | None:
    """Returns the content of a file, or None if there is none.

    Raises:
      UserError: If the file has more than `max_bytes` (None is for any size), or the store refuses
        the request.
      ConnectionError: If the store does not answer.
      OSError: If a local file cannot be read.
    """
    read = storage_of(path).read(os.fspath(path), max_bytes and max_bytes + 1)
    if read and max_bytes and len(read[0]) > max_bytes:
        raise UserError(f"it has more than {max_bytes:,} bytes")
    return read and read[0]


def read_json(path: Path) -> Any:
    """Returns the value of a JSON file, or None if there is none.

    Raises:
      ValueError: If it is no JSON, has more than `documents.MOST_BYTES` (128 MiB), or is `null`.
      UserError: If a store refuses the request.
      ConnectionError: If a store does not answer.
      OSError: If a local file cannot be read.
    """
    if (text := read_bytes(path, documents.MOST_BYTES)) is None:
        return None
    if (content := documents.parse_json(text)) is None:
        raise ValueError("it says nothing")
    return content


@contextlib.contextmanager
def parsed_json(path: Path) -> Iterator[Any]:
    """Context manager that yields the value of a JSON file, or None if there is no file.

    Raises:
      UserError: If the file cannot be read, is no JSON or is `null`, or the block raises any error,
        such as a KeyError for a key that the file lacks; the message names the file. A `UserError`
        of the block passes unchanged.
      ConnectionError: If a store does not answer.
    """
    with reading(path):
        yield read_json(path)


def write_bytes(path: Path, content: bytes, **options: Any) -> File:
    """Writes a file, complete or not at all, and returns it.

    Args:
      path: Path; missing folders are created, and a file there is replaced.
      content: Whole content.
      **options: Options of `common.storage.storage.Writer`, such as `if_version`.

    Raises:
      FileExistsError: If the option `if_version` does not hold, or is given and a local file
        exists; but not if the file that exists has the same content.
      UserError: If the store refuses the request.
      ConnectionError: If the store does not answer.
      OSError: If a local file cannot be written.
    """
    with storage_of(path).create(os.fspath(path), **options) as file:
        file.write(content)
    return file.file


def write_text(path: Path, text: str, **options: Any) -> File:
    """Writes a text file in UTF-8, with the options, result and errors of `write_bytes`."""
    return write_bytes(path, text.encode(), **options)


def delete_files(paths: Iterable[Path]) -> None:
    """Deletes files; paths without a file are ignored.

    Raises:
      UserError: If the store refuses a request.
      ConnectionError: If the store does not answer.
      OSError: If a local file cannot be deleted.
    """
    map_in_threads(lambda path: storage_of(path).delete(os.fspath(path)), paths)


def copy_tree(source: Path, target: Path) -> None:
    """Copies all files below a folder to below another one, where they replace existing files.

    Nothing is done if there is no such folder.

    Raises:
      UserError: If links lead to one folder twice, a file changes meanwhile, or a store refuses a
        request.
      OSError: If a local file cannot be read or written, or a store does not answer.
    """
    source = os.fspath(source).rstrip("/")
    storage = storage_of(target)

    def copy(file: File) -> None:
        path = f"{os.fspath(target).rstrip('/')}{file.path.removeprefix(source)}"
        with open_file(file) as data, storage.create(path) as writer:
            shutil.copyfileobj(data, writer, _CHUNK_BYTES)

    map_in_threads(copy, storage_of(source).list(source))


def sha256_of(place: File | Path) -> str:
    """Returns the SHA-256 (hexadecimal) of a file's content.

    Raises:
      FileNotFoundError: If there is no such file.
      FileChangedError: If it is not the listed version any more.
      UserError: If the store refuses the request.
      ConnectionError: If the store does not answer.
      OSError: If a local file cannot be read.
    """
    with open_file(place) as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def crc32c(content: bytes | np.ndarray) -> str:
    """Returns the CRC-32C (8 hexadecimal digits) of contiguous bytes."""
    return f"{google_crc32c.value(content):08x}"


def crc32c_of(path: Path) -> str:
    """Returns the CRC-32C (8 hexadecimal digits) of a file; a bucket knows it without reading.

    Raises:
      FileNotFoundError: If there is no such file.
      FileChangedError: If a local file changes while it is read.
      UserError: If the store refuses the request.
      ConnectionError: If the store does not answer.
      OSError: If a local file cannot be read.
    """
    return storage_of(path).crc32c(require_file(path))


def tree_digest(folder: Path) -> str:
    """Returns the SHA-256 (hexadecimal) over the names and contents of all files below a folder.

    Names are relative to the folder. A folder that does not exist has the digest of an empty one.

    Raises:
      UserError: If links lead to one folder twice, a file changes meanwhile, or the store refuses a
        request.
      OSError: If a local file cannot be read, or the store does not answer.
    """
    root = os.fspath(folder).rstrip("/")
    digest = hashlib.sha256()
    for file in storage_of(root).list(root):
        digest.update(f"{file.path.removeprefix(f'{root}/')}\0{sha256_of(file)}\n".encode())
    return digest.hexdigest()


def require_file(place: File | Path) -> File:
    """Returns the file at a path, which has to exist.

    A `File` that has a version, as listed ones do, is returned unchanged without a look.

    Raises:
      FileNotFoundError: If there is none.
      UserError: If the store refuses the request.
      ConnectionError: If the store does not answer.
    """
    path = place.path if isinstance(place, File) else place
    file = place if isinstance(place, File) and place.version else stat_file(path)
    if file is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
    return file
