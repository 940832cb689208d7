"""Small files, whole or not at all, in a directory or an object store.

A store's files come from TensorFlow: they open as context managers only, give bytes to `read` and nothing else, and fail
with errors of TensorFlow's own, which `store_errors` makes the usual ones.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import hashlib
import math
import os
import pathlib
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import google_crc32c

from common import bounded_json
from common.errors import UserError, reading

if TYPE_CHECKING:
    import numpy as np  # it would start threads, and replicas first have to block signals
    from etils import epath

_PIECE_BYTES = 1 << 20


class Counts:
    """What all threads of this process have done so far, by name."""

    def __init__(self, *names: str):
        self._counts, self._counting = collections.Counter(dict.fromkeys(names, 0)), threading.Lock()
        let_go = self._counting.release  # nobody is to be forked in the middle
        os.register_at_fork(before=self._counting.acquire, after_in_parent=let_go, after_in_child=let_go)

    def add(self, **more: int) -> None:
        """Adds to some of them."""
        with self._counting:
            self._counts.update(more)

    def told(self) -> dict[str, int]:
        """All of them."""
        with self._counting:
            return dict(self._counts)


def is_remote(path: epath.PathLike) -> bool:
    """Whether a path is in an object store, where every request takes its time and nothing can be renamed at once."""
    return "://" in os.fspath(path)


def read_bytes(path: epath.PathLike, most_bytes: float = math.inf) -> bytes | None:
    """Returns the content of a small file, or None if there is no such file: one request where it is in a store.

    TensorFlow, if asked for all of an object, asks for its size before, and whether it is a directory if it is not there;
    of one that is replaced in between it gives a piece. So it is asked for pieces; it fetches up to 64 MiB at once.

    Raises:
      UserError: If it has more than `most_bytes`.
    """
    try:
        with store_errors(), _path(path).open("rb") as file:
            content = bytearray()
            while piece := file.read(_PIECE_BYTES):
                content += piece
                if len(content) > most_bytes:
                    raise UserError(f"it has more than {most_bytes:,} bytes")
            return bytes(content)
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_json(path: epath.PathLike) -> Any:
    """What a JSON file says, or None if there is none."""
    if (text := read_bytes(path, bounded_json.MOST_BYTES)) is None:
        return None
    if (content := bounded_json.parse(text)) is None:
        raise ValueError("it says nothing")
    return content


@contextlib.contextmanager
def stated(path: epath.PathLike) -> Iterator[Any]:
    """What `read_json` has of the program's own; what goes wrong with it inside is a `UserError` that names the file."""
    with reading(path):
        yield read_json(path)


def make_directory(path: epath.PathLike) -> None:
    """Makes a directory and those above it, if they are not there; a store needs none."""
    if not is_remote(path):
        os.makedirs(path, exist_ok=True)


def write_text(path: epath.PathLike, text: str) -> None:
    """Writes a file of text, whole or not at all, as `write_bytes` does."""
    write_bytes(path, text.encode())


def without_nan(values: Mapping[str, float]) -> dict[str, float | None]:
    """Returns the values with None, which JSON has a word for, in place of those that are not finite."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def write_bytes(path: epath.PathLike, content: bytes) -> None:
    """Writes a file so that a reader sees the old content or the new, never a part, even after a crash."""
    path = _path(path)
    if is_remote(path):
        with store_errors():
            path.write_bytes(content)  # an object appears when its upload is complete
        return
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        _path(temporary).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def store_errors() -> Iterator[None]:
    """Around what is done with a path that may be in an object store.

    Raises:
      FileNotFoundError: If it is not there.
      EOFError: If it ends before the place that was asked for.
      ConnectionError: If the store still fails after the library has tried again, ten times over some minutes.
      OSError: If the store refuses.
    """
    try:
        yield
    except Exception as error:
        library = sys.modules.get("tensorflow")  # where it was not needed yet, the error is not its
        if library is None or not isinstance(error, library.errors.OpError):
            raise
        message = " ".join(error.message.split())
        if isinstance(error, library.errors.NotFoundError):
            raise FileNotFoundError(errno.ENOENT, message) from None
        if isinstance(error, library.errors.OutOfRangeError):
            raise EOFError(message) from None
        if isinstance(error, (library.errors.UnavailableError, library.errors.AbortedError)):
            raise ConnectionError(message) from None
        raise OSError(errno.EIO, message) from None


def digest_of(path: os.PathLike[str]) -> str:
    """SHA-256 (hexadecimal) of a file."""
    digest = hashlib.sha256()
    with store_errors(), _path(path).open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def crc32c(content: bytes | np.ndarray) -> str:
    """CRC-32C (hexadecimal, 8 digits) of contiguous bytes."""
    return f"{google_crc32c.value(content):08x}"


def crc32c_of(path: os.PathLike[str]) -> str:
    """CRC-32C (hexadecimal, 8 digits) of a file, which is also what Cloud Storage keeps of an object."""
    checksum = google_crc32c.Checksum()
    with store_errors(), _path(path).open("rb") as file:
        for _ in checksum.consume(file, _PIECE_BYTES):
            pass
    return checksum.hexdigest().decode()


def tree_digest(directory: epath.PathLike) -> str:
    """SHA-256 (hexadecimal) over the names and contents of all files below a directory."""
    root = _path(directory)
    digest = hashlib.sha256()
    with store_errors():
        for path in sorted(_files(root), key=str):
            digest.update(f"{path.relative_to(root)}\0{digest_of(path)}\n".encode())
    return digest.hexdigest()


def copy_tree(source: epath.PathLike, target: epath.PathLike) -> None:
    """Copies all files below a directory to below another one."""
    from etils import epath

    root = epath.Path(source)
    with store_errors():
        for path in _files(root):
            copied = epath.Path(target) / path.relative_to(root)
            copied.parent.mkdir(parents=True, exist_ok=True)
            path.copy(copied)


def _path(path: epath.PathLike) -> epath.Path | pathlib.Path:
    if not is_remote(path):
        return pathlib.Path(path)
    from etils import epath  # 50 ms

    return epath.Path(path)


def _files(directory: epath.Path) -> Iterator[epath.Path]:
    for path in directory.iterdir():
        if path.is_dir():
            yield from _files(path)
        else:
            yield path
