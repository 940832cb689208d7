"""Reads files, here or in a bucket: large ranges, and the next one while this one is looked at.

with opened(file, start=1 << 30, stop=2 << 30) as data:      # a file as it was listed, or a path
    data.read(4096), data.seek(0), data.tell()
with jumping(file) as data:                                  # for who goes here and there: no byte but those asked for
    data.expect([range(4, 1 << 20)])                         # at once
    data.seek(4), data.read(4096)
"""

import collections
import io
import itertools
import os
from collections.abc import Iterable, Iterator
from concurrent import futures
from typing import Any

from components.files.listing import File, found, of_path
from components.files.store import THREADS, asked, count, retried
from trainer.base.errors import UserError
from trainer.base.files import is_remote

_BUFFER_BYTES = 64 << 10
_LEAST_BYTES, _MOST_BYTES = 256 << 10, 8 << 20  # that are fetched at once
_AT_ONCE = 4  # ranges that are expected
_AHEAD_BYTES = 32 << 20  # of files that are opened in turn


def opened(place: File | str, start: int = 0, stop: int = 0) -> io.BufferedReader:
    """Opens a file at a position.

    Args:
      place: The file as it was listed: if it is not the same any more, reading it is a `UserError`. Or a path.
      start: Where reading begins.
      stop: Where it is likely to end, if that is known: up to there it is fetched ahead. What comes after can be read too.
    """
    file = place if isinstance(place, File) and place.version else found(path := getattr(place, "path", place))
    if file is None:
        raise UserError(f"{path}: no such file")
    return io.BufferedReader(_Ranges(file, start, stop), _BUFFER_BYTES)


def opened_in_turn(files: Iterable[File], most: int | None = None) -> Iterator[io.BufferedReader]:
    """Opens files at their beginnings, one after another; where every request takes its time, the next ones are fetched meanwhile.

    Args:
      files: As they were listed.
      most: How many bytes of each are likely to be read; None for all of it.
    """

    def begun(file: File) -> io.BufferedReader:
        data = opened(file, stop=min(file.num_bytes, file.num_bytes if most is None else most))
        data.peek()
        return data

    ahead: collections.deque[tuple[int, futures.Future]] = collections.deque()
    with futures.ThreadPoolExecutor(THREADS) as pool:
        try:
            for file in files:
                if not is_remote(file.path):
                    yield opened(file, stop=most or file.num_bytes)
                    continue
                num_bytes = min(file.num_bytes, most or _MOST_BYTES)
                while len(ahead) == THREADS or (ahead and sum(n for n, _ in ahead) + num_bytes > _AHEAD_BYTES):
                    yield ahead.popleft()[1].result()
                ahead.append((num_bytes, pool.submit(begun, file)))
            while ahead:
                yield ahead.popleft()[1].result()
        finally:
            pool.shutdown(cancel_futures=True)


def jumping(file: File) -> "_Jumping":
    """Opens a file that was listed for who goes here and there in it."""
    return _Jumping(file)


class _Ranges(io.RawIOBase):
    """A file of which the range that was fetched last is held, and one that follows on it is on its way."""

    def __init__(self, file: File, start: int, stop: int) -> None:
        self._file, self._at, self._stop = file, start, min(stop, file.num_bytes)
        self._range, self._held = range(start, start), b""
        self._step = _MOST_BYTES if stop else _LEAST_BYTES // 2
        self._ahead: tuple[range, futures.Future[bytes]] | None = None
        self._thread = futures.ThreadPoolExecutor(1)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._file.num_bytes)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._file.num_bytes - self._at)
        if wanted > 0 and self._at not in self._range:
            self._fill(wanted)
        first = self._at - self._range.start
        given = self._held[first : first + max(wanted, 0)]
        buffer[: len(given)] = given
        self._at += len(given)
        return len(given)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        super().close()

    def _fill(self, wanted: int) -> None:
        follows = self._at == self._range.stop != self._stop
        self._step = min(2 * self._step, _MOST_BYTES) if follows else _LEAST_BYTES
        if self._ahead and self._at in self._ahead[0]:
            self._range, self._held = self._ahead[0], self._ahead[1].result()
        else:
            self._range = self._after(self._at, max(wanted, self._step))
            self._held = _fetched(self._file, self._range)
        ahead = self._after(self._range.stop, self._step)
        self._ahead = None
        if follows and ahead and ahead.start != self._stop:
            self._ahead = ahead, self._thread.submit(_fetched, self._file, ahead)

    def _after(self, start: int, num_bytes: int) -> range:
        return range(start, min(start + num_bytes, self._stop if start < self._stop else self._file.num_bytes))


class _Jumping(io.RawIOBase):
    """A file that was listed, of which what is asked for is read, and no byte more; but what is expected, all at once and before."""

    def __init__(self, file: File) -> None:
        self._file, self._at, self._threads = file, 0, futures.ThreadPoolExecutor(_AT_ONCE)
        self._expected: collections.deque[list[tuple[range, futures.Future[bytes]]]] = collections.deque(maxlen=2)

    def expect(self, spans: Iterable[range]) -> None:
        """Fetches ranges in which parts will be asked for, and holds them until two others of these calls."""
        self._expected.append([(span, self._threads.submit(_fetched, self._file, span)) for span in spans])

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._file.num_bytes)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes | memoryview:
        stop = self._file.num_bytes if size < 0 else min(self._at + size, self._file.num_bytes)
        start, self._at = self._at, max(self._at, stop)
        for span, content in itertools.chain.from_iterable(self._expected):
            if span.start <= start < stop <= span.stop:
                return memoryview(content.result())[start - span.start : stop - span.start]
        return _fetched(self._file, range(start, stop))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        super().close()


def _fetched(file: File, span: range) -> bytes:
    """The bytes of a range, which is no longer than the file."""
    content = (_of_bucket if is_remote(file.path) else _of_disk)(file, span) if span else b""
    count(bytes_read=len(content))
    if len(content) != len(span):
        raise file.changed()
    return content


def _of_disk(file: File, span: range) -> bytes:
    try:
        with open(file.path, "rb") as data:
            if of_path(data.fileno()).version != file.version:
                raise file.changed()
            data.seek(span.start)
            return data.read(len(span))
    except FileNotFoundError:
        raise file.changed() from None


def _of_bucket(file: File, span: range) -> bytes:
    from google.api_core.exceptions import NotFound

    how = {"raw_download": True, "single_shot_download": True, "checksum": None, "retry": retried}
    with asked(file.path) as (bucket, name):
        try:
            blob = bucket.blob(name, generation=int(file.version))
            return blob.download_as_bytes(start=span.start, end=span.stop - 1, **how)
        except NotFound:
            raise file.changed() from None
