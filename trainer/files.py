"""Small files, whole or not at all, in a directory or an object store."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import google_crc32c
from etils import epath

if TYPE_CHECKING:  # the library would start threads, and replicas first have to block signals
    import numpy as np

_PIECE_BYTES = 1 << 20


def write_text(path: epath.PathLike, text: str) -> None:
    """Writes a file so that a reader sees the old content or the new, never a part, even after a crash."""
    path = epath.Path(path)
    if "://" in os.fspath(path):
        path.write_text(text)  # an object appears when its upload is complete
        return
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        epath.Path(temporary).unlink(missing_ok=True)
        raise


def digest_of(path: os.PathLike[str]) -> str:
    """SHA-256 (hexadecimal) of a file."""
    with epath.Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def crc32c(content: bytes | np.ndarray) -> str:
    """CRC-32C (hexadecimal, 8 digits) of contiguous bytes."""
    return f"{google_crc32c.value(content):08x}"


def crc32c_of(path: os.PathLike[str]) -> str:
    """CRC-32C (hexadecimal, 8 digits) of a file, which is also what Cloud Storage keeps of an object."""
    checksum = google_crc32c.Checksum()
    with epath.Path(path).open("rb") as file:
        for _ in checksum.consume(file, _PIECE_BYTES):
            pass
    return checksum.hexdigest().decode()


def tree_digest(directory: epath.PathLike) -> str:
    """SHA-256 (hexadecimal) over the names and contents of all files below a directory."""
    root = epath.Path(directory)
    digest = hashlib.sha256()
    for path in sorted(_files(root), key=str):
        digest.update(f"{path.relative_to(root)}\0{digest_of(path)}\n".encode())
    return digest.hexdigest()


def _files(directory: epath.Path) -> Iterator[epath.Path]:
    for path in directory.iterdir():
        if path.is_dir():
            yield from _files(path)
        else:
            yield path
