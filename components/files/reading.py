"""Reads files, here or in a bucket: large ranges, and the next one while this one is looked at.

with opened(file, start=1 << 30, stop=2 << 30) as data:      # a file as it was listed, or a path
    data.read(4096), data.seek(0), data.tell()
with jumping(file) as data:                                  # for who goes here and there: no byte but those asked for
    data.expect([range(4, 1 << 20)])                         # at once
    data.seek(4), data.read(4096)
whole(path)                                                  # of a small file
"""

import collections
import io
import itertools
import os
from collections.abc import Iterable, Iterator
from concurrent import futures
from typing import Any

from components.files.listing import File, found, of_path
from components.files.store import COUNTS, THREADS, asked, retried
from trainer.base.errors import UserError
from trainer.base.files import is_remote

_FEW_BYTES, _BUFFER_BYTES = 4 << 10, 64 << 10  # that are read on this machine at once, the former of a short range
_LEAST_BYTES, _MOST_BYTES = 256 << 10, 8 << 20  # that are fetched at once, the former behind where reading was to end
_AT_ONCE = 4  # ranges that are expected
_AHEAD_BYTES = 32 << 20  # of files that are opened in turn


def opened(place: File | str, start: int = 0, stop: int | None = None, *, ahead: int = 1) -> io.BufferedReader:
    """Opens a file at a position.

    Args:
      place: The file as it was listed: if it is not the same any more, reading it is a `UserError`. Or a path.
      start: Where reading begins.
      stop: Where it is likely to end, if not with the file: up to there it is fetched ahead. What comes after can be read too.
      ahead: How many ranges are on their way at once in a bucket, each by a connection of its own, while one is looked at.
    """
    file = place if isinstance(place, File) and place.version else found(path := getattr(place, "path", place))
    if file is None:
        raise UserError(f"{path}: no such file")
    stop = file.num_bytes if stop is None else stop
    raw = _Ranges(file, start, stop, ahead) if is_remote(file.path) else _OnDisk(file, start, stop)
    return io.BufferedReader(raw, min(max(_FEW_BYTES, stop - start), _BUFFER_BYTES))


def whole(path: str) -> bytes | None:
    """All bytes of a file that others may replace meanwhile; None if there is none."""
    file = found(path)
    while file:
        try:
            with opened(file) as data:
                return data.read()
        except UserError:
            if file == (file := found(path)):
                raise
    return None


def opened_in_turn(files: Iterable[File], most: int | None = None) -> Iterator[io.BufferedReader]:
    """Opens files at their beginnings, one after another; where every request takes its time, the next ones are fetched meanwhile.

    Args:
      files: As they were listed.
      most: How many bytes of each are likely to be read; None for all of it.
    """
    ahead: collections.deque[tuple[int, io.BufferedReader]] = collections.deque()
    for file in files:
        ahead.append((min(file.num_bytes, most or _MOST_BYTES), data := opened(file, stop=most)))
        if remote := is_remote(file.path):
            data.raw.begin()
        while ahead and (not remote or len(ahead) > THREADS or sum(n for n, _ in ahead) > _AHEAD_BYTES):
            yield ahead.popleft()[1]
    yield from (data for _, data in ahead)


def jumping(file: File) -> "_Ranges":
    """Opens a file that was listed for who goes here and there in it."""
    return _Ranges(file)


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


class _Ranges(io.RawIOBase):
    """A file of which those ranges are held, or on their way, that were expected last.

    Who reads it on and on has the range that follows fetched meanwhile, or several. `read` gets what is asked for, no byte more.
    """

    def __init__(self, file: File, start: int = 0, stop: int = 0, ahead: int = 1) -> None:
        self._file, self._at, self._stop, self._ahead = file, start, min(stop, file.num_bytes), ahead
        self._expected: collections.deque[list[tuple[range, futures.Future[bytes]]]] = collections.deque(
            maxlen=1 + ahead
        )
        self._threads = futures.ThreadPoolExecutor(max(_AT_ONCE, ahead))

    def expect(self, spans: Iterable[range]) -> None:
        """Fetches ranges in which parts will be asked for, and holds them until two others of these calls."""
        self._expected.append([(span, self._threads.submit(_fetched, self._file, span)) for span in spans])

    def begin(self) -> None:
        """Fetches what is read first."""
        self.expect([self._following(self._at)])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._file.num_bytes)[whence]
        return self._at

    def read(self, size: int = -1) -> bytes | memoryview:
        stop = self._file.num_bytes if size < 0 else min(self._at + size, self._file.num_bytes)
        start, self._at = self._at, max(self._at, stop)
        for span, content in itertools.chain.from_iterable(self._expected):
            if span.start <= start < stop <= span.stop:
                return memoryview(content.result())[start - span.start : stop - span.start]
        return _fetched(self._file, range(start, stop))

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self._read_on(_MOST_BYTES), b""))

    def readinto(self, buffer: Any) -> int:
        given = self._read_on(len(buffer))
        buffer[: len(given)] = given
        return len(given)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        super().close()

    def _read_on(self, most: int) -> bytes | memoryview:
        """Some of the bytes that follow, so many at most; none at the end."""
        spans = [span for span, _ in itertools.chain.from_iterable(self._expected)]
        here = held = next((span for span in spans if self._at in span), None)
        if here is None:
            here, spans = self._following(self._at), []
            self._expected.clear()
        last = here
        for _ in range(self._ahead):
            after = last.stop
            if after >= self._stop or not (last := next((s for s in spans if after in s), self._following(after))):
                break
            if last not in spans:
                self.expect([last])
        if held is None:
            content = futures.Future()
            content.set_result(_fetched(self._file, here))
            self._expected.appendleft([(here, content)])
        return self.read(min(most, here.stop - self._at)) if here else b""

    def _following(self, start: int) -> range:
        """What is fetched at once from a byte on."""
        stop, most = (self._stop, _MOST_BYTES) if start < self._stop else (self._file.num_bytes, _LEAST_BYTES)
        return range(start, min(start + most, stop))


def _fetched(file: File, span: range) -> bytes:
    """The bytes of a range, which is no longer than the file."""
    if is_remote(file.path):
        content = _of_bucket(file, span) if span else b""
        COUNTS.add(bytes_read=len(content))
    else:
        with _OnDisk(file, span.start, span.stop) as data:
            content = data.read(len(span))
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
