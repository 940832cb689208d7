"""Which files there are, here or in a bucket, and what tells whether they change: `listed("gs://bucket/data")`."""

import base64
import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from common.errors import UserError
from common.storage.files import is_remote
from common.storage.store import asked, parallel, retried

_FIELDS = "items(name,size,generation,crc32c),nextPageToken"


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """A file as it was found.

    Attributes:
      path: Where it is, or its `gs://` address.
      num_bytes: Its size.
      version: Another one whenever it is written: the generation of an object, the time of a local file's last change in
        nanoseconds; empty where nobody has looked.
      crc32c: Of its content, 8 hexadecimal digits; empty if only reading it would tell.
    """

    path: str
    num_bytes: int
    version: str = ""
    crc32c: str = ""

    def changed(self) -> UserError:
        """What to raise if it is not that any more."""
        return UserError(
            f"{self.path}: it has changed or gone since it was looked at; start again when nobody writes it"
        )


def found(path: str) -> File | None:
    """The file of this path; None if there is none, or if it is a folder."""
    if is_remote(path):
        with asked(path) as (bucket, name):
            blob = bucket.get_blob(name, retry=retried) if name and not name.endswith("/") else None
            return of_blob(blob) if blob else None
    return of_path(path) if os.path.isfile(path) else None


def listed(place: str, *, follow_links: bool = True) -> list[File]:
    """The file of this path, or those below a folder of this path, in the order of their paths.

    A link to nowhere is a file without a version, which nobody can open.

    Raises:
      UserError: If links lead to one folder twice, so that its files would be listed twice or without end.
    """
    if file := found(place):
        return [file]
    if is_remote(place):
        with asked(place.rstrip("/")) as (bucket, name):
            blobs = bucket.list_blobs(prefix=f"{name}/" if name else "", fields=_FIELDS, retry=retried)
        files = [of_blob(blob) for blob in blobs if not blob.name.endswith("/")]  # that would be a folder's marker
    else:
        files = [file for file in map(_still_there, _paths(place, follow_links)) if file]
    return sorted(files, key=lambda file: file.path)


def is_folder(place: str) -> bool:
    """Whether there is a directory of this path, or anything in a bucket below it."""
    if not is_remote(place):
        return os.path.isdir(place)
    with asked(place.rstrip("/")) as (bucket, name):
        return any(bucket.list_blobs(prefix=f"{name}/" if name else "", max_results=1, retry=retried))


def inside(folder: str) -> tuple[list[str], list[File]]:
    """The folders and the files that are right in a folder, in the order of their paths; none if there is no such folder."""
    if is_remote(folder):
        with asked(folder.rstrip("/")) as (bucket, name):
            prefix, fields = f"{name}/" if name else "", f"prefixes,{_FIELDS}"
            blobs = bucket.list_blobs(prefix=prefix, delimiter="/", fields=fields, retry=retried)
            files = [of_blob(blob) for blob in blobs if not blob.name.endswith("/")]
            folders = [f"gs://{bucket.name}/{prefix.removesuffix('/')}" for prefix in blobs.prefixes]
    elif not os.path.isdir(folder):
        return [], []
    else:
        with os.scandir(folder) as entries:  # of a link that leads to itself an entry does not say what it is
            inner = {e.path: os.path.isdir(e.path) if e.is_symlink() else e.is_dir() for e in entries}
        folders = [path for path, is_inner_folder in inner.items() if is_inner_folder]
        files = [file for path in inner.keys() - folders if (file := _still_there(path))]
    return sorted(folders), sorted(files, key=lambda file: file.path)


def deleted(paths: Iterable[str]) -> None:
    """Deletes files; what is gone already is no mistake."""
    local, remote = [], []
    for path in paths:
        (remote if is_remote(path) else local).append(path)
    for path in local:
        pathlib.Path(path).unlink(missing_ok=True)
    if remote:
        parallel(_delete, remote)


def of_blob(blob: Any) -> File:
    """The file that an object of Google's client is."""
    crc32c, path = base64.b64decode(blob.crc32c).hex(), f"gs://{blob.bucket.name}/{blob.name}"
    return File(path=path, num_bytes=blob.size, version=str(blob.generation), crc32c=crc32c)


def of_path(path: str | int) -> File:
    """The file of a path on this machine, or of a descriptor."""
    status = os.stat(path)
    return File(path=str(path), num_bytes=status.st_size, version=str(status.st_mtime_ns))


def _paths(directory: str, follow_links: bool) -> Iterator[str]:
    """Yields the paths of all files below a directory."""
    path_of: dict[str, str] = {}  # by the folder's path without links
    for folder, _, names in os.walk(directory, onerror=_refuse, followlinks=follow_links):
        first = path_of.setdefault(os.path.realpath(folder), folder)
        if first != folder:
            raise UserError(
                f"{folder}: is the same folder as {first}; delete the link to it, or give the files to read"
            )
        yield from (os.path.join(folder, name) for name in names)


def _still_there(path: str) -> File | None:
    """A file that was there a moment ago; None if another process has deleted it, or given it its name, since."""
    try:
        return of_path(path)
    except OSError as error:
        if os.path.islink(path):
            return File(path=path, num_bytes=0)
        if isinstance(error, FileNotFoundError):
            return None
        raise


def _delete(path: str) -> None:
    from google.api_core.exceptions import NotFound

    with asked(path) as (bucket, name), contextlib.suppress(NotFound):
        bucket.blob(name).delete(retry=retried)


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error  # where a folder cannot be read, files would be missed by nobody
