"""Unpacks files, and copies them from buckets, to plain files of this machine.

    path = plain_path(file, "work")

Files may be packed with gzip, xz or zstd, which their first bytes tell.
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
    import pyarrow as pa  # The import takes memory, which the other two do not need.

    return pa.CompressedInputStream(raw, "zstd")


# By the first three bytes of a file.
_OPENERS: dict[bytes, Any] = {
    b"\x1f\x8b\x08": gzip.open,
    b"\xfd7z": lzma.open,
    b"(\xb5/": _open_zstd,
}


def plain_path(file: File, folder: str) -> str:
    """Returns the path of a plain file of this machine with the content of a file.

    Args:
      file: The file, which may be packed or in a bucket.
      folder: Folder of this machine for a copy, if one is needed. The copy lies in it below all
        folders of the file's path, whose names may mean something, and has its name.

    Returns:
      The path of the file itself if it is plain and on this machine; else that of the copy.

    Raises:
      UserError: If the file cannot be read or is damaged, or the copy cannot be written.
      ConnectionError: If a store does not answer.
    """
    if not is_remote(file.path):
        with readable(file.path), open_file(file, stop=3) as raw:
            if raw.read(3) not in _OPENERS:
                return file.path
    path = f"{folder}{os.path.abspath(file.path)}"
    with writable(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as copy:
            copy.writelines(_chunks(file))
    return path


def _chunks(file: File) -> Iterator[bytes]:
    """Yields the content of a file, unpacked if it is packed.

    Raises what `plain_path` raises of the file.
    """
    try:
        with readable(file.path), open_file(file) as raw:
            content = _OPENERS.get(raw.peek(3)[:3], lambda plain: plain)(raw)
            while chunk := content.read(_CHUNK_BYTES):
                yield chunk
    except (zlib.error, lzma.LZMAError, EOFError) as error:
        raise UserError(f"{file.path}: cannot be read ({error})") from None
