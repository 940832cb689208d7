# ruff: noqa: D102 (`Storage` documents these methods)
"""Objects of Cloud Storage, by Google's client: one client per process, for all of its threads.

pyarrow's file system for Google Cloud was tried and rejected: it cannot be given a certificate
authority, and it reads the current version of an object in place of the one that was listed.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import mimetypes
import os
import tempfile
from collections.abc import Iterator
from concurrent import futures
from http import HTTPStatus
from typing import IO, Any

from common.google_cloud import refusals
from common.storage.storage import (
    MAX_THREADS,
    File,
    FileChangedError,
    Storage,
    Writer,
)

_FIELDS = "prefixes,items(name,size,generation,crc32c,updated),nextPageToken"
_UPLOAD_S = 300.0  # No new upload begins later than this after the first.
_MEMORY_BYTES = 8 << 20  # A larger upload is kept in an unnamed file until it is sent.


class Bucket(Storage):
    """Implements `Storage` for `gs://BUCKET/NAME`.

    Attributes:
      chunk_bytes: Bytes that are fetched at once.
    """

    chunk_bytes = 8 << 20

    def stat(self, path: str) -> File | None:
        with connect(path) as (bucket, name):
            blob = bucket.get_blob(name) if name and not name.endswith("/") else None
            return blob and _file(blob)

    def list_folder(self, folder: str) -> tuple[list[str], list[File]]:
        return _list(folder, delimiter="/")

    def list(self, folder: str, *, follow_links: bool = True) -> list[File]:
        return _list(folder)[1]

    def open(self, file: File, start: int, stop: int) -> io.RawIOBase:
        return _Reader(file, start, stop, self.chunk_bytes)

    def read(self, path: str, max_bytes: int | None) -> tuple[bytes, str] | None:
        from google.api_core.exceptions import NotFound, RequestRangeNotSatisfiable

        with connect(path) as (bucket, name):
            blob = bucket.blob(name)
            try:
                return _download(blob, end=max_bytes and max_bytes - 1), str(blob.generation)
            except NotFound:
                return None
            except RequestRangeNotSatisfiable:  # The object is empty, so that it has no byte 0.
                return _download(blob), str(blob.generation)

    def delete(self, path: str, *, if_version: str | None = None) -> None:
        from google.api_core.exceptions import NotFound, PreconditionFailed

        with connect(path) as (bucket, name), contextlib.suppress(NotFound, PreconditionFailed):
            bucket.blob(name).delete(**_condition(if_version))

    def _open_temporary(self, path: str) -> IO[bytes]:
        return tempfile.SpooledTemporaryFile(_MEMORY_BYTES)

    def _publish(self, temporary: IO[bytes], file: File, writer: Writer) -> str:
        from google.api_core.exceptions import PreconditionFailed

        once = {"timeout": writer.timeout_s, "retry": None} if writer.timeout_s else {}
        with connect(file.path) as (bucket, name):
            blob = bucket.blob(name)
            # The store refuses an upload with any other checksum.
            blob.crc32c = base64.b64encode(bytes.fromhex(file.crc32c)).decode()
            blob.content_type = mimetypes.guess_type(name)[0]
            options = {"rewind": True, "size": file.num_bytes, "checksum": None, **once}
            with contextlib.suppress(PreconditionFailed):
                upload = _again_if_gone(blob.upload_from_file)
                upload(temporary, **options, **_condition(writer.if_version))
                return str(blob.generation)
        raise FileExistsError(f"{file.path}: it is there already, with another content")


class _Reader(io.RawIOBase):
    """Reader of an object that fetches ahead from `start` to `stop`.

    Inside that range it reads in chunks, and fetches the next chunk meanwhile. Outside it fetches
    only the bytes that are requested.
    """

    def __init__(self, file: File, start: int, stop: int, chunk_bytes: int) -> None:
        self._file = file
        self._position = start
        self._span = range(start, min(stop, file.num_bytes))
        self._chunk_bytes = chunk_bytes
        # The chunk that is being read and the next one, by number.
        self._chunks: dict[int, futures.Future[bytes]] = {}
        self._thread = futures.ThreadPoolExecutor(1)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._file.num_bytes)[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        start = self._position
        stop = min(start + len(buffer), self._file.num_bytes)
        if start in self._span:
            chunk, offset = divmod(start - self._span.start, self._chunk_bytes)
            self._chunks = {
                key: self._chunks.get(key) or self._fetch(key) for key in (chunk, chunk + 1)
            }
            content = memoryview(self._chunks[chunk].result())[offset : offset + stop - start]
        else:
            content = memoryview(_download_range(self._file, range(start, stop)))
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        super().close()

    def _fetch(self, chunk: int) -> futures.Future[bytes]:
        first = chunk * self._chunk_bytes
        return self._thread.submit(
            _download_range, self._file, self._span[first : first + self._chunk_bytes]
        )


@contextlib.contextmanager
def connect(path: str) -> Iterator[tuple[Any, str]]:
    """Yields the client's bucket object for a path `gs://BUCKET/NAME`, and the name.

    The name is empty for a path `gs://BUCKET`.

    Raises:
      UserError: If the store refuses a request in the block, or there are no credentials.
      ConnectionError: If the store does not answer, or says that it cannot do so now. Also for any
        other `OSError` in the block.
    """
    bucket, _, name = path.removeprefix("gs://").partition("/")
    with refusals(f"{path.rstrip('/')} cannot be used"):
        yield _client(os.environ.get("STORAGE_EMULATOR_HOST")).bucket(bucket), name


@functools.cache
def _client(_emulator: str | None) -> Any:
    from google.cloud.storage import Client  # Imported when needed, as this takes 1 s.
    from requests.adapters import HTTPAdapter

    client = Client(project=None)
    for scheme in ("https://", "http://"):  # An emulator uses http.
        client._http.mount(scheme, HTTPAdapter(pool_maxsize=2 * MAX_THREADS, pool_block=True))
    return client


# Processes that share a connection after a fork would read each other's answers.
os.register_at_fork(after_in_child=_client.cache_clear)


def _again_if_gone(upload: Any) -> Any:
    """Returns a function like `upload` that begins again if the store has ended its session."""
    from google.api_core import exceptions, retry

    def is_gone(error: Exception) -> bool:
        return isinstance(error, exceptions.GoogleAPICallError) and error.code == HTTPStatus.GONE

    return retry.Retry(is_gone, timeout=_UPLOAD_S)(upload)


def _condition(if_version: str | None) -> dict[str, int]:
    # For Cloud Storage, generation 0 means that there must be no object.
    return {} if if_version is None else {"if_generation_match": int(if_version or 0)}


def _download(blob: Any, **span: int | None) -> bytes:
    return blob.download_as_bytes(
        **span, raw_download=True, single_shot_download=True, checksum=None
    )


def _download_range(file: File, span: range) -> bytes:
    """Returns a range of an object in the version that was listed.

    Raises:
      FileChangedError: If that version does not exist any more, or ends before the range does.
      UserError: If the store refuses the request.
      ConnectionError: If the store does not answer.
    """
    from google.api_core.exceptions import NotFound

    if not span:
        return b""
    with connect(file.path) as (bucket, name), contextlib.suppress(NotFound):
        blob = bucket.blob(name, generation=int(file.version))
        content = _download(blob, start=span.start, end=span.stop - 1)
        if len(content) == len(span):
            return content
    raise FileChangedError(file.path)


def _list(folder: str, **options: Any) -> tuple[list[str], list[File]]:
    """Returns the paths of folders and the files of a folder, each sorted by path.

    Args:
      folder: Path `gs://BUCKET/NAME`, with or without a slash at its end.
      **options: With `delimiter="/"`, the result is what lies directly in the folder. Without it,
        the result is all files below the folder, and no folders.

    Raises:
      UserError: If the store refuses a request.
      ConnectionError: If the store does not answer.
    """
    with connect(f"{folder.rstrip('/')}/") as (bucket, prefix):
        blobs = bucket.list_blobs(prefix=prefix, fields=_FIELDS, **options)
        # A name that ends with a slash marks a folder.
        files = [_file(blob) for blob in blobs if not blob.name.endswith("/")]
        folders = [f"gs://{bucket.name}/{name.rstrip('/')}" for name in blobs.prefixes]
    return sorted(folders), sorted(files, key=lambda file: file.path)


def _file(blob: Any) -> File:
    return File(
        path=f"gs://{blob.bucket.name}/{blob.name}",
        num_bytes=blob.size,
        version=str(blob.generation),
        crc32c=base64.b64decode(blob.crc32c).hex(),
        updated_s=blob.updated.timestamp(),
    )
