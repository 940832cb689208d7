"""Objects of Cloud Storage, kept in a directory: `ROOT/BUCKET/NAME` is the object NAME.

The same directory is what jobs see at `/gcs`, so what is written there is an object too.
Generations, preconditions and the limit of one write a second to an object follow Cloud Storage's
documentation ("Request preconditions", "Quotas and limits"). A folder marker, an object whose name
ends with `/`, is a directory.
"""

import base64
import datetime
import functools
import os
import pathlib
import re
import threading
import time
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import google_crc32c
from google.api_core import exceptions

_WRITE_S = 1.0


class Objects:
    """All buckets: the directories that are there."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root, self.lock = root, threading.RLock()
        self._aside = root.parent / "uploading"  # nobody lists half an object
        self._aside.mkdir(exist_ok=True)
        self._markers: set[pathlib.Path] = set()
        self._written: dict[pathlib.Path, float] = {}

    def path(self, bucket: str, name: str) -> pathlib.Path:
        """File of an object, or directory of a folder marker; the bucket has to be there."""
        if not (self.root / bucket).is_dir():
            raise exceptions.NotFound("The specified bucket does not exist.")
        return self.root / bucket / name

    def find(self, bucket: str, name: str) -> dict[str, Any] | None:
        """The object's resource, or None."""
        path = self.path(bucket, name)
        with self.lock:
            if name.endswith("/"):
                if not path.is_dir() or (path not in self._markers and any(path.iterdir())):
                    return None
            elif not path.is_file():
                return None
            stat = path.stat()
            generation, size = str(stat.st_mtime_ns), 0 if path.is_dir() else stat.st_size
            checksum = _crc32c(path, generation, size)
        at = datetime.datetime.fromtimestamp(stat.st_mtime, datetime.UTC).strftime(
            "%Y-%m-%dT%H:%M:%S.%fZ"
        )
        media = f"https://storage.googleapis.com/download/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}"
        return {
            "name": name,
            "bucket": bucket,
            "generation": generation,
            "metageneration": "1",
            "etag": generation,
            "size": str(size),
            "updated": at,
            "timeCreated": at,
            "contentType": "application/octet-stream",
            "crc32c": checksum,
            "mediaLink": f"{media}?generation={generation}&alt=media",
        }

    def get(self, bucket: str, name: str, query: Mapping[str, str] = {}) -> dict[str, Any]:
        """The object's resource; it has to be there, and of the generation that the request wants."""
        known = self.find(bucket, name)
        _require(known, query)
        if not known or query.get("generation", known["generation"]) != known["generation"]:
            raise exceptions.NotFound(f"No such object: {bucket}/{name}")
        return known

    def read(
        self,
        bucket: str,
        name: str,
        query: Mapping[str, str],
        start: int = 0,
        stop: int | None = None,
    ) -> tuple[dict[str, Any], bytes]:
        """The object's resource and bytes, or of these a range."""
        return self.get(bucket, name, query), _data(self.path(bucket, name), start, stop)

    def put(self, bucket: str, name: str, data: bytes, query: Mapping[str, str]) -> dict[str, Any]:
        """Writes an object whole; preconditions are compared and it is written under one lock.

        `crc32c`, which Cloud Storage takes in the object's metadata, is what the data has to have.
        """
        path = self.path(bucket, name)
        with self.lock:
            _require(self.find(bucket, name), query)
            if query.get("crc32c", "") not in ("", _encoded(data)):
                raise exceptions.BadRequest("Provided CRC32C does not match the calculated one.")
            if time.monotonic() - self._written.get(path, -1.0) < _WRITE_S:
                raise exceptions.TooManyRequests(
                    f"The object {name} exceeded the rate limit for object mutations."
                )
            self._written[path] = time.monotonic()
            if name.endswith("/"):
                path.mkdir(parents=True, exist_ok=True)
                self._markers.add(path)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                temporary = self._aside / uuid.uuid4().hex
                temporary.write_bytes(data)
                os.utime(temporary, ns=(time.time_ns(),) * 2)  # two writes never share a generation
                temporary.replace(path)
            return self.get(bucket, name)

    def delete(self, bucket: str, name: str, query: Mapping[str, str]) -> None:
        """Deletes an object; a folder without objects is none, unless it has a marker."""
        with self.lock:
            self.get(bucket, name, query)
            path = self.path(bucket, name)
            self._markers.discard(path)
            if not path.is_dir():
                path.unlink()
                path = path.parent
            while (
                path != self.root / bucket and path not in self._markers and not any(path.iterdir())
            ):
                path.rmdir()
                path = path.parent

    def page(self, bucket: str, query: Mapping[str, str]) -> dict[str, Any]:
        """A page of the objects under a prefix, in the order of their names; with a delimiter deeper ones as prefixes."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        glob = (
            re.escape(query.get("matchGlob", "**")).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
        )
        most, after = int(query.get("maxResults", 1000)), query.get("pageToken", "")
        items: dict[str, dict[str, Any]] = {}
        prefixes: set[str] = set()
        with self.lock:
            for item in self._under(bucket, prefix):
                name = item["name"]
                if not re.fullmatch(glob, name):
                    continue
                if not query.get("startOffset", "") <= name < query.get("endOffset", chr(0x10FFFF)):
                    continue
                end = name.find(delimiter, len(prefix)) if delimiter else -1
                deeper = name[: end + len(delimiter)] if end >= 0 else ""
                if deeper:
                    prefixes.add(deeper)
                else:
                    items[name] = item
        left = [name for name in sorted(items.keys() | prefixes) if name > after]
        answer: dict[str, Any] = {"kind": "storage#objects"}
        answer["items"] = [items[name] for name in left[:most] if name in items]
        answer["prefixes"] = [name for name in left[:most] if name in prefixes]
        return answer | ({"nextPageToken": left[most - 1]} if len(left) > most else {})

    def _under(self, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
        base = self.path(bucket, "")
        for folder, _, files in os.walk(base / prefix.rpartition("/")[0]):
            at = f"{os.path.relpath(folder, base)}/".removeprefix("./")
            for name in (at, *(f"{at}{file}" for file in files)):
                if name and name.startswith(prefix) and (item := self.find(bucket, name)):
                    yield item


@functools.lru_cache(10_000)
def _crc32c(path: pathlib.Path, generation: str, size: int) -> str:
    """Checksum of the file as long as it is of this generation and size."""
    return _encoded(_data(path))


def _encoded(data: bytes) -> str:
    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()


def _data(path: pathlib.Path, start: int = 0, stop: int | None = None) -> bytes:
    if path.is_dir():
        return b""
    with path.open("rb") as file:
        file.seek(start)
        return file.read(-1 if stop is None else stop - start)


def _require(known: Mapping[str, Any] | None, query: Mapping[str, str]) -> None:
    """Compares `ifGenerationMatch`; 0 stands for an object that is not there."""
    generation = known["generation"] if known else "0"
    if query.get("ifGenerationMatch", generation) != generation:
        raise exceptions.PreconditionFailed(
            "At least one of the pre-conditions you specified did not hold."
        )
