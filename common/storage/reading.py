"""Reads files, here or in a bucket: large ranges, and the next one while this one is looked at.

with opened(file, start=1 << 30, stop=2 << 30) as data:      # a file as it was listed, or a path
    data.read(4096), data.seek(0), data.tell()
with jumping(file) as data:                                  # for who goes here and there: no byte but those asked for
    data.seek(4), data.read(4096)
whole(path)                                                  # of a small file
"""

import io
import os
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any

from common.errors import UserError
from common.storage.files import is_remote
from common.storage.listing import File, found, of_path
from common.storage.store import COUNTS, THREADS, asked, parallel, retried

_FEW_BYTES, _BUFFER_BYTES = 4 << 10, 64 << 10  # that are read on this machine at once, the former of a short range
_LEAST_BYTES, _MOST_BYTES = 256 << 10, 8 << 20  # that are fetched at once, the former behind where reading was to end


def opened(place: File | str, start: int = 0, stop: int | None = None) -> io.BufferedReader:
    """Opens a file at a position.

    Args:
      place: The file as it was listed: if it is not the same any more, reading it is a `UserError`. Or a path.
      start: Where reading begins.
      stop: Where it is likely to end, if not with the file: up to there it is fetched ahead. What comes after can be read too.
    """
    file = place if isinstance(place, File) and place.version else found(path := getattr(place, "path", place))
    if file is None:
        raise UserError(f"{path}: no such file")
    stop = file.num_bytes if stop is None else stop
    raw = _InBucket(file, start, stop) if is_remote(file.path) else _OnDisk(file, start, stop)
    return io.BufferedReader(raw, min(max(_FEW_BYTES, stop - start), _BUFFER_BYTES))


def whole(path: str) -> bytes | None:
    """All bytes of a file; None if there is none."""
    if file := found(path):
        with opened(file) as data:
            return data.read()
    return None


def opened_in_turn(files: Sequence[File], most: int | None = None) -> Iterator[io.BufferedReader]:
    """Opens files at their beginnings, one after another; in a bucket, some of them at once.

    Args:
      files: As they were listed.
      most: How many bytes of each are likely to be read; None for all of it.
    """

    def begun(file: File) -> io.BufferedReader:
        data = opened(file, stop=most)
        data.peek(1)
        return data

    for first in range(0, len(files), THREADS):
        some = files[first : first + THREADS]
        yield from parallel(begun, some) if is_remote(some[0].path) else (opened(file, stop=most) for file in some)


def jumping(file: File) -> io.RawIOBase:
    """Opens a file that was listed for who goes here and there in it: `read` reads no byte but those asked for."""
    return _InBucket(file) if is_remote(file.path) else _OnDisk(file, 0, file.num_bytes)


class _OnDisk(io.FileIO):
    """A file of this machine, which is read without a copy on the way: the system has the next bytes ready."""

    read, readall = io.RawIOBase.read, io.RawIOBase.readall  # which read by `readinto`

    def __init__(self, file: File, start: int, stop: int) -> None:
        self._file, self._stop = file, stop
        try:
            super().__init__(file.path)
        except FileNotFoundError:
            raise file.changed() from None
        self.seek(start)

    def readinto(self, buffer: Any) -> int:
        if of_path(self.fileno()).version != self._file.version:
            raise self._file.changed()
        left = self._stop - self.tell()  # what comes after is another's
        COUNTS.add(bytes_read=(num_bytes := super().readinto(memoryview(buffer)[:left] if left > 0 else buffer)))
        return num_bytes


class _InBucket(io.RawIOBase):
    """A file in a bucket, of which large ranges are fetched, and the next one while one is looked at."""

    def __init__(self, file: File, start: int = 0, stop: int = 0) -> None:
        self._file, self._at, self._stop = file, start, min(stop, file.num_bytes)
        self._ranges: list[tuple[range, futures.Future[bytes]]] = []  # the one that is read, and the next one
        self._thread = futures.ThreadPoolExecutor(1)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._file.num_bytes)[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self._file.num_bytes if size < 0 else min(self._at + size, self._file.num_bytes)
        start, self._at = self._at, max(self._at, stop)
        return _fetched(self._file, range(start, stop))

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self._read_on(_MOST_BYTES), b""))

    def readinto(self, buffer: Any) -> int:
        content = self._read_on(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        super().close()

    def _read_on(self, most: int) -> bytes | memoryview:
        """Some of the bytes that follow, so many at most; none at the end."""
        self._ranges = [each for each in self._ranges if each[0].stop > self._at]
        if not self._ranges or self._at not in self._ranges[0][0]:
            self._ranges = []
            self._fetch(self._at)
        span, content = self._ranges[0]
        if not span:
            return b""
        if len(self._ranges) == 1 and span.stop < self._stop:
            self._fetch(span.stop)
        start, self._at = self._at, min(self._at + most, span.stop)
        return memoryview(content.result())[start - span.start : self._at - span.start]

    def _fetch(self, start: int) -> None:
        """Begins to fetch what follows from a byte on."""
        stop, most = (self._stop, _MOST_BYTES) if start < self._stop else (self._file.num_bytes, _LEAST_BYTES)
        span = range(start, min(start + most, stop))
        self._ranges.append((span, self._thread.submit(_fetched, self._file, span)))


def _fetched(file: File, span: range) -> bytes:
    """The bytes of a range of an object."""
    content = _of_bucket(file, span) if span else b""
    COUNTS.add(bytes_read=len(content))
    if len(content) != len(span):
        raise file.changed()
    return content


def _of_bucket(file: File, span: range) -> bytes:
    from google.api_core.exceptions import NotFound

    how = {"raw_download": True, "single_shot_download": True, "checksum": None, "retry": retried}
    with asked(file.path) as (bucket, name):
        try:
            blob = bucket.blob(name, generation=int(file.version))
            return blob.download_as_bytes(start=span.start, end=span.stop - 1, **how)
        except NotFound:
            raise file.changed() from None
