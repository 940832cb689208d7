"""Ranges of a dataset's files, wherever these are: no byte more than what is asked for, and each counted.

    content = read_range("gs://bucket/data/train-00000-of-00008.tfrecord", 1_000_000, 3_000_000)
    COUNTS.told()     # {"data_bytes_read": 2000000, "data_requests": 1, "data_retries": 0}

Of a bucket's file TensorFlow fetches 64 MiB, however little is asked for, over a new connection each time. So ranges of
`gs://` are asked for here, by Cloud Storage's JSON API. Imports no TensorFlow.
"""

import contextlib
import errno
import functools
import io
import os
import sys
import urllib.parse
from typing import Any, BinaryIO

import tenacity
from etils import epath

from trainer.base.files import Counts, store_errors

_PIECE_BYTES = 16 << 20  # of a file that is read on and on: an object store answers each request after a while only
_CONNECTIONS, _TIMEOUT_S = 32, 60.0
# Bytes of the dataset that this process has read so far, requests to a bucket for them, and those made again.
COUNTS = Counts("data_bytes_read", "data_requests", "data_retries")


@tenacity.retry(
    retry=tenacity.retry_if_exception(
        lambda e: type(e) not in (FileNotFoundError, PermissionError) and isinstance(e, OSError)
    ),
    stop=tenacity.stop_after_attempt(8),  # a minute
    wait=tenacity.wait_exponential(0.5, max=30),
    before_sleep=lambda _: COUNTS.add(data_retries=1),
    reraise=True,
)
def read_range(path: epath.PathLike, start: int, stop: int | None = None) -> bytes:
    """The bytes from `start` to `stop`, or to the end of the file if that comes first; a store that fails is asked again.

    Raises what `store_errors` says.
    """
    if stop is not None and stop <= start:
        return b""
    content = b""
    with contextlib.suppress(EOFError), store_errors():
        if os.fspath(path).startswith("gs://"):
            content = _fetched(os.fspath(path), start, stop)
        else:
            with epath.Path(path).open("rb") as file:
                file.seek(start)
                content = file.read(-1 if stop is None else stop - start)
    COUNTS.add(data_bytes_read=len(content))
    return content


def opened(path: epath.PathLike, start: int = 0, stop: int = sys.maxsize) -> BinaryIO:
    """A file to be read on and on from one byte to another one."""
    return io.BufferedReader(_Range(path, start, stop), _PIECE_BYTES)


class _Range(io.RawIOBase):
    def __init__(self, path: epath.PathLike, start: int, stop: int) -> None:
        self._path, self._at, self._stop = path, start, stop

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        end = min(self._at + len(buffer), self._stop)
        content = read_range(self._path, self._at, end)
        self._at += len(content)
        if self._at < end:  # the end of the file, which need not be asked for again
            self._stop = self._at
        buffer[: len(content)] = content
        return len(content)


def _fetched(path: str, start: int, stop: int | None) -> bytes:
    import urllib3  # all of which a dataset here does without
    from google.auth.exceptions import GoogleAuthError

    bucket, _, name = path.removeprefix("gs://").partition("/")
    url = f"/download/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}?alt=media"
    span = {"Range": f"bytes={start}-{'' if stop is None else stop - 1}"}
    try:
        session, host = _session(os.environ.get("STORAGE_EMULATOR_HOST"))
        COUNTS.add(data_requests=1)
        with session.get(host + url, headers=span, stream=True, timeout=_TIMEOUT_S) as answer:
            if (status := answer.status_code) == 416:
                return b""  # it ends before
            if status in (400, 401, 403, 404):
                raise (FileNotFoundError if status == 404 else PermissionError)(status, f"{answer.reason}: {path}")
            answer.raise_for_status()
            return answer.raw.read()
    except urllib3.exceptions.HTTPError as error:
        raise ConnectionError(str(error)) from None
    except GoogleAuthError as error:
        raise PermissionError(errno.EACCES, " ".join(str(error).split())) from None


@functools.cache
def _session(emulator: str | None) -> tuple[Any, str]:
    """Connections of all threads, and the host they lead to. Where there are no credentials, what is public can be read."""
    import google.auth
    from google.auth.credentials import AnonymousCredentials
    from google.auth.transport.requests import AuthorizedSession
    from requests.adapters import HTTPAdapter

    credentials: Any = AnonymousCredentials()
    if not emulator:
        with contextlib.suppress(google.auth.exceptions.DefaultCredentialsError):
            credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/devstorage.read_only"])
    session = AuthorizedSession(credentials)
    session.mount("https://", HTTPAdapter(pool_maxsize=_CONNECTIONS))
    return session, emulator or "https://storage.googleapis.com"
