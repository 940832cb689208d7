"""Files in a `.tar`, `.tar.gz` or `.tar.xz`, read as a stream.

    for name, num_bytes, stream in members(file, most=200_000_000):
        stream.readinto(buffer)

Nothing is unpacked to disk, and of a member's path only the last part is kept. Links and devices are passed over.
"""

import gzip
import lzma
import pathlib
import tarfile
import zlib
from collections.abc import Iterator
from typing import IO

from components.files.listing import File
from components.files.reading import opened
from trainer.base.errors import UserError

# What reading a stream of members may raise; the caller, who reads, knows which member it was.
ERRORS = (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError)
_CHUNK_BYTES = 1 << 20  # a larger read would hold all of itself a second time
_OPENERS = {b"\x1f\x8b": gzip.open, b"\xfd7": lzma.open}


def members(file: File, *, most: int) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Name, bytes and content of each regular file, to be read before the next one is asked for.

    Compression is known by content. The archive is read to its end, where the checksums are.

    Raises:
      UserError: If it unpacks to more than `most` bytes: neither a member nor a header can fill the memory.
      tarfile.TarError, OSError and others: One of `ERRORS`, if it is damaged or no archive.
    """
    with opened(file, stop=file.num_bytes) as raw:
        opener = _OPENERS.get(raw.peek(2)[:2])
        with opener(raw) if opener else raw as unpacked:
            stream = _Bounded(file.path, unpacked, most)
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                for member in tar:
                    if member.isfile():
                        yield pathlib.PurePosixPath(member.name).name, member.size, tar.extractfile(member)
            while stream.read(_CHUNK_BYTES):
                pass


class _Bounded:
    """Reads a file up to a number of bytes."""

    def __init__(self, path: str, file: IO[bytes], most: int):
        self._path, self._file, self._most, self._left = path, file, most, most

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise UserError(f"{self._path}: unpacks to more than the {self._most} bytes that are due")
        return data
