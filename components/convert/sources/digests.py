"""One checksum over many files.

digest = of_files([pathlib.Path("train.gz"), pathlib.Path("test.gz")])
"""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Iterable

from trainer.base.files import digest_of


def of(files: Iterable[tuple[str, str]]) -> str:
    """SHA-256 (hexadecimal) over names and checksums of contents, in this order."""
    digest = hashlib.sha256()
    for name, content in files:
        digest.update(f"{name}\0{content}\n".encode())
    return digest.hexdigest()


def of_files(paths: Iterable[pathlib.Path]) -> str:
    """SHA-256 (hexadecimal) over the files' names, without their folders, and contents."""
    return of((path.name, digest_of(path)) for path in paths)
