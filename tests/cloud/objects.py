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
import re
import threading
import time
import urllib.parse
import uuid

import google_crc32c
from google.api_core import exceptions

_NAME_BYTES = 1024  # in UTF-8


class Objects:
    """All buckets: the directories that are there."""

    def __init__(self, root, write_s=1.0):
        """`write_s`: how often an object may be written, at most."""
        self.root, self.lock, self._write_s = root, threading.RLock(), write_s
        self._aside = root.parent / "uploading"  # nobody lists half an object
        self._aside.mkdir(exist_ok=True)
        self._markers = set()
        self._written = {}

    def path(self, bucket, name):
        """File of an object, or directory of a folder marker; the bucket has to be there.

        The rules of names are those of "About Cloud Storage objects".
        """
        is_allowed = len(name.encode()) <= _NAME_BYTES and not re.search("[\r\n]", name)
        if not is_allowed or name in (".", "..") or name.startswith(".well-known/acme-challenge/"):
            raise exceptions.BadRequest(f"Invalid object name {name!r:.80}.")
        if not (self.root / bucket).is_dir():
            raise exceptions.NotFound("The specified bucket does not exist.")
        return self.root / bucket / name

    def find(self, bucket, name):
        """The object's resource, or None."""
        path = self.path(bucket, name)
        is_marker = name.endswith("/")
        with self.lock:
            if is_marker and (
                not path.is_dir() or (path not in self._markers and any(path.iterdir()))
            ):
                return None
            if not is_marker and not path.is_file():
                return None
            stat = path.stat()
            generation, size = str(stat.st_mtime_ns), 0 if is_marker else stat.st_size
            checksum = _crc32c(path, generation, size)
        at = datetime.datetime.fromtimestamp(stat.st_mtime, datetime.UTC)
        quoted = urllib.parse.quote(name, safe="")
        media = f"https://storage.googleapis.com/download/storage/v1/b/{bucket}/o/{quoted}"
        return {
            "name": name,
            "bucket": bucket,
            "generation": generation,
            "metageneration": "1",
            "size": str(size),
            "updated": f"{at:%Y-%m-%dT%H:%M:%S.%fZ}",
            "crc32c": checksum,
            "mediaLink": f"{media}?generation={generation}&alt=media",
        }

    def get(self, bucket, name, query):
        """The object's resource, which has to be of the generation that the request wants."""
        known = self.find(bucket, name)
        _require(known, query, exceptions.NotModified)
        if not known or query.get("generation", known["generation"]) != known["generation"]:
            raise exceptions.NotFound(f"No such object: {bucket}/{name}")
        return known

    def read(self, bucket, name, query, start=0, stop=None):
        """The object's resource and bytes, or of these a range."""
        return self.get(bucket, name, query), _data(self.path(bucket, name), start, stop)

    def put(self, bucket, name, data, query):
        """Writes an object whole; preconditions are compared and it is written under one lock.

        `crc32c`, which Cloud Storage takes in the object's metadata, is what the data has to have.
        """
        path = self.path(bucket, name)
        with self.lock:
            _require(self.find(bucket, name), query)
            if query.get("crc32c", "") not in ("", _encoded(data)):
                raise exceptions.BadRequest("Provided CRC32C does not match the calculated one.")
            if time.monotonic() - self._written.get(path, -1.0) < self._write_s:
                raise exceptions.TooManyRequests(f"{name} exceeded the rate limit of mutations.")
            self._written[path] = time.monotonic()
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith("/"):
                path.mkdir(exist_ok=True)
                self._markers.add(path)
            else:
                temporary = self._aside / uuid.uuid4().hex
                temporary.write_bytes(data)
                os.utime(temporary, ns=(time.time_ns(),) * 2)  # two writes never share a generation
                temporary.replace(path)
            return self.get(bucket, name, {})

    def delete(self, bucket, name, query):
        """Deletes an object; a folder without objects is none, unless it has a marker."""
        with self.lock:
            _require(self.find(bucket, name), query)
            self.get(bucket, name, query)
            path = self.path(bucket, name)
            self._markers.discard(path)
            if not path.is_dir():
                path.unlink()
                path = path.parent
            kept = {*self._markers, self.root / bucket}
            while path not in kept and not any(path.iterdir()):
                path.rmdir()
                path = path.parent

    def page(self, bucket, query):
        """A page of the objects under a prefix; with a delimiter deeper ones as prefixes."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        items = {}  # None of a prefix
        with self.lock:
            for item in self._under(bucket, prefix):
                name = item["name"]
                if delimiter and delimiter in (behind := name.removeprefix(prefix)):
                    items[prefix + behind.partition(delimiter)[0] + delimiter] = None
                else:
                    items[name] = item
        left = sorted(name for name in items if name > query.get("pageToken", ""))
        names = left[: int(query.get("maxResults", 1000))]
        answer = {
            "items": [items[name] for name in names if items[name]],
            "prefixes": [name for name in names if not items[name]],
        }
        return answer | ({"nextPageToken": names[-1]} if len(left) > len(names) else {})

    def _under(self, bucket, prefix):
        base = self.path(bucket, "")
        for folder, _, files in os.walk(base / prefix.rpartition("/")[0]):
            at = f"{os.path.relpath(folder, base)}/".removeprefix("./")
            for name in (at, *(f"{at}{file}" for file in files)):
                if name and name.startswith(prefix) and (item := self.find(bucket, name)):
                    yield item


@functools.lru_cache(10_000)
def _crc32c(path, generation, size):
    """Checksum of the file as long as it is of this generation and size."""
    return _encoded(_data(path))


def _encoded(data):
    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()


def _data(path, start=0, stop=None):
    return b"" if path.is_dir() else path.read_bytes()[start:stop]


def _require(known, query, unchanged=exceptions.PreconditionFailed):
    """Compares all preconditions; generation 0 stands for an object that is not there.

    `unchanged` is how it is refused that the object is still the one that the request has.
    """
    for part in ("Generation", "Metageneration"):
        value = known[part.lower()] if known else "0"
        if query.get(f"if{part}Match", value) != value:
            raise exceptions.PreconditionFailed("A precondition did not hold.")
        if query.get(f"if{part}NotMatch") == value:
            raise unchanged("A precondition did not hold.")
