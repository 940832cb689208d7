"""One checksum over many files.

digest = of_files([pathlib.Path("train.gz"), pathlib.Path("test.gz")])
"""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Iterable


def of_content(path: pathlib.Path) -> str:
    """SHA-256 (hexadecimal) of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def of(files: Iterable[tuple[str, str]]) -> str:
    """SHA-256 (hexadecimal) over names and checksums of contents, in this order."""
    digest = hashlib.sha256()
    for name, content in files:
        digest.update(f"{name}\0{content}\n".encode())
    return digest.hexdigest()


def of_files(paths: Iterable[pathlib.Path]) -> str:
    """SHA-256 (hexadecimal) over the files' names, without their folders, and contents."""
    return of((path.name, of_content(path)) for path in paths)
