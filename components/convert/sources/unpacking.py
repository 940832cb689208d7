"""Files that are packed (gzip, xz or zstd, known by what they begin with) or in a bucket, as plain files of this machine.

path = plain_path(file, "work/trips.csv")
"""

import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from typing import Any

from common.errors import UserError, readable, writable
from common.storage.files import open_file
from common.storage.storage import File, is_remote

_CHUNK_BYTES = 1 << 20


def _open_zstd(raw: io.BufferedReader) -> Any:
    import pyarrow as pa  # Takes memory that the other two do without.

    return pa.CompressedInputStream(raw, "zstd")


_OPENERS = {b"\x1f\x8b": gzip.open, b"\xfd7": lzma.open, b"\x28\xb5": _open_zstd}


def plain_path(file: File, path: str) -> str:
    """Returns the path of a file that is on this machine and not packed, else what `unpack` does."""
    if not is_remote(file.path):
        with readable(file.path), open_file(file, stop=2) as raw:
            if raw.read(2) not in _OPENERS:
                return file.path
    return unpack(file, path)


def unpack(file: File, path: str | os.PathLike[str]) -> str:
    """Copies a file, unpacked if it is packed, to a path of this machine, and returns this path.

    Raises:
      UserError: If the file cannot be read or is damaged, or the path cannot be written.
    """
    with writable(path), open(path, "wb") as copy:
        copy.writelines(_content(file))
    return os.fspath(path)


def _content(file: File) -> Iterator[bytes]:
    """Yields the content of a file; errors of reading, unlike those of writing what it yields, are `UserError`s of it."""
    try:
        with readable(file.path), open_file(file) as raw:
            content = _OPENERS.get(raw.peek(2)[:2], lambda plain: plain)(raw)
            while chunk := content.read(_CHUNK_BYTES):
                yield chunk
    except (zlib.error, lzma.LZMAError, EOFError) as error:
        raise UserError(f"{file.path}: cannot be read ({error})") from None
