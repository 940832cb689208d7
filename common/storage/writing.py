"""Writes files, here or in a bucket, whole or not at all, and joins them.

with created("gs://bucket/parts/00007") as part:     # there when the block ends without an error, and never before
    part.write(b"...")
written("gs://bucket/notes/7.json", "{}")        # the same of a text
joined([part.made, ...], "gs://bucket/train-00000-of-00008.tfrecord")    # the store does it: nothing is read or sent
"""

import base64
import contextlib
import dataclasses
import os
import pathlib
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from typing import Any, Self

import google_crc32c

from common.storage.files import crc32c_of, is_remote
from common.storage.listing import File, deleted, found, of_blob, of_path
from common.storage.store import COUNTS, asked, parallel, retried

_HELD_BYTES = 8 << 20  # of an upload; what is larger lies in an unnamed file until it is sent
_COPIED_BYTES = 1 << 18  # at once: they stay in the cache of a core
_COMPOSED = 32  # objects that Cloud Storage joins at most at once


class created:
    """A file that appears when it is closed.

    Args:
      path: Where it will be; what is there is replaced.
      new: Whether it must not be there yet, but with the same content: then closing it raises `FileExistsError`.
      durable: Whether it is still whole after this machine has lost its power, for which closing it takes longer.

    Attributes:
      made: What has been made, as soon as it is.
    """

    made: File

    def __init__(self, path: str, *, new: bool = False, durable: bool = True) -> None:
        self._path, self._new, self._durable = path, new, durable
        self._checksum, self._num_bytes = google_crc32c.Checksum(), 0
        self._file = tempfile.SpooledTemporaryFile(_HELD_BYTES) if is_remote(path) else _temporary(path)  # noqa: SIM115

    def write(self, content: Any) -> None:
        """Appends bytes, or a contiguous array of them."""
        self._checksum.update(content)
        self._num_bytes += self._file.write(content)

    def close(self) -> File:
        """Makes it appear."""
        crc32c = self._checksum.hexdigest().decode()
        try:
            (self._upload if is_remote(self._path) else self._rename)(crc32c)
        except FileExistsError:  # made by somebody else, or by ourselves in a request whose answer was lost
            there = found(self._path)
            if not there or (there.crc32c or crc32c_of(self._path)) != crc32c:
                raise
        finally:
            self.abandon()
        COUNTS.add(bytes_written=self._num_bytes)
        self.made = File(path=self._path, num_bytes=self._num_bytes, crc32c=crc32c)
        return self.made

    def abandon(self) -> None:
        """Forgets what was written."""
        try:
            self._file.close()  # which fails, too, on a disk that is full
        finally:
            if not is_remote(self._path):
                pathlib.Path(self._file.name).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.abandon() if kind else self.close()

    def _rename(self, _: str) -> None:
        self._file.flush()
        if self._durable:
            os.fsync(self._file.fileno())
        self._file.close()  # before others see it: a file system that machines share writes now
        (os.link if self._new else os.replace)(self._file.name, self._path)

    def _upload(self, crc32c: str) -> None:
        from google.api_core.exceptions import PreconditionFailed

        with asked(self._path) as (bucket, name):
            blob = bucket.blob(name)
            blob.crc32c = base64.b64encode(bytes.fromhex(crc32c)).decode()  # the store refuses anything else
            how = {"checksum": None, "retry": retried, **({"if_generation_match": 0} if self._new else {})}
            try:
                return blob.upload_from_file(self._file, rewind=True, size=self._num_bytes, **how)
            except PreconditionFailed:
                pass
        raise FileExistsError(f"{self._path}: it is there already, with another content")


def written(path: str, text: str, **how: bool) -> None:
    """Makes a file of a text, as `created` does."""
    with created(path, **how) as file:
        file.write(text.encode())


def copy_folder(source: str, target: str) -> None:
    """Copies the objects of a folder to another one, whose objects nobody else writes; their bytes stay in the store."""
    with asked(source) as (bucket, folder), asked(target) as (there, new):
        for blob in bucket.list_blobs(prefix=f"{folder}/", retry=retried):
            copy, token, more = there.blob(f"{new}/{blob.name.removeprefix(f'{folder}/')}"), None, True
            while more:  # a large object takes several requests
                token, *_ = copy.rewrite(blob, token=token, retry=retried)
                more = token is not None


def joined(parts: Sequence[File], target: str) -> File:
    """Makes a file of others, which stay and may not have changed; all are on this machine, or in one bucket."""
    made = _composed(parts, target) if parts and is_remote(target) else _concatenated(parts, target)
    if made.num_bytes != sum(part.num_bytes for part in parts):
        deleted([target])
        raise made.changed()
    return made


def _concatenated(parts: Sequence[File], target: str) -> File:
    """Copies them; a single one gets a second name."""
    if len(parts) == 1:
        temporary = f"{target}.{uuid.uuid4().hex}.tmp"
        with contextlib.suppress(OSError):  # not every file system has links
            os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
            os.link(parts[0].path, temporary)
            with open(temporary, "rb") as part:
                os.fsync(part.fileno())
            os.replace(temporary, target)
            pathlib.Path(temporary).unlink(missing_ok=True)  # it stays where both were names of one file already
            return dataclasses.replace(of_path(target), crc32c=parts[0].crc32c)
    with created(target) as file:
        for part in parts:
            try:
                with open(part.path, "rb") as data:
                    shutil.copyfileobj(data, file, _COPIED_BYTES)
            except FileNotFoundError:
                raise part.changed() from None
    return file.made


def _composed(parts: Sequence[File], target: str) -> File:
    """Has the store join them: more than it takes at once by way of objects that are deleted afterwards."""
    own: list[str] = []
    with asked(target) as (bucket, last):

        def compose(names: Sequence[str], name: str) -> File:
            blob = bucket.blob(name)
            blob.compose([bucket.blob(name) for name in names], retry=retried)
            return of_blob(blob)

        names = [part.path.removeprefix(f"gs://{bucket.name}/") for part in parts]
        try:
            while len(names) > _COMPOSED:
                groups = [names[first : first + _COMPOSED] for first in range(0, len(names), _COMPOSED)]
                names = [f"{last}.{uuid.uuid4().hex}.tmp" for _ in groups]
                own += names
                parallel(lambda job: compose(*job), zip(groups, names, strict=True))
            return compose(names, last)
        finally:
            deleted(f"gs://{bucket.name}/{name}" for name in own)


def _temporary(path: str) -> Any:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    return open(f"{path}.{uuid.uuid4().hex}.tmp", "xb")
