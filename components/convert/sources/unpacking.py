"""Files that are packed (gzip, xz or zstd, known by what they begin with) or in a bucket, as plain files of this machine.

path = file.path if is_plain(file) else unpack(file, "work/trips.csv")
"""

import io
import lzma
import os
from collections.abc import Iterator
from typing import Any

from common.errors import UserError, readable, writable
from common.storage.files import open_file
from common.storage.storage import File, is_remote

_PACKED = {b"\x1f\x8b": "gzip", b"\xfd7": "xz", b"\x28\xb5": "zstd"}
_CHUNK_BYTES = 1 << 20


def is_plain(file: File) -> bool:
    """Returns whether a file is on this machine and not packed."""
    if is_remote(file.path):
        return False
    with readable(file.path), open_file(file, stop=2) as raw:
        return raw.read(2) not in _PACKED


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
            content = _open_packed(raw)
            while chunk := content.read(_CHUNK_BYTES):
                yield chunk
    except (lzma.LZMAError, EOFError) as error:
        raise UserError(f"{file.path}: cannot be read ({error})") from None


def _open_packed(raw: io.BufferedReader) -> Any:
    import pyarrow as pa  # Slow to import.

    codec = _PACKED.get(raw.peek(2)[:2])
    if codec == "xz":
        return lzma.open(raw)
    return pa.CompressedInputStream(raw, codec) if codec else raw
