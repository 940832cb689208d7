"""TensorFlow's file system in memory, reached by epath and by `common.storage` as `gs://` is.

`AWAY` is below a scheme that TensorFlow has no file system for: every request fails, as of a store
that is away.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import tempfile
import zlib
from unittest import mock

from etils import epath
from etils.epath import backend, gpath, register

from common.errors import store_errors
from common.storage import storage

AWAY = "s3://bucket/away"
_open = backend._TfBackend.open


class EpathStorage(storage.Storage):
    """Files by epath, small ones; a version is the checksum of the content."""

    def stat(self, path):
        """Returns the file of a path."""
        content = self.read(path, None)
        return content and storage.File(path=path, num_bytes=len(content[0]), version=content[1])

    def list(self, folder, *, follow_links=True):
        """Returns the files below a folder."""
        paths = sorted(map(os.fspath, epath.Path(folder).iterdir()))
        files = [self.list(p) if epath.Path(p).is_dir() else [self.stat(p)] for p in paths]
        return [*itertools.chain(*files)]

    def open(self, file, start, stop):
        """Opens a listed file at a position."""
        data = io.BytesIO(self.read(file.path, None)[0])
        data.seek(start)
        return data

    def read(self, path, max_bytes):
        """Returns the content of a file and its version."""
        try:
            with store_errors():
                content = epath.Path(path).read_bytes()[:max_bytes]
        except FileNotFoundError:
            return None
        return content, str(zlib.crc32(content))

    def _refuse(self, *arguments, **options):
        raise NotImplementedError

    list_folder = delete = _join = _refuse

    def _open_temporary(self, path):
        return tempfile.TemporaryFile()

    def _publish(self, temporary, file, writer):
        temporary.seek(0)
        content = temporary.read()
        with store_errors():
            epath.Path(file.path).parent.mkdir(parents=True, exist_ok=True)
            epath.Path(file.path).write_bytes(content)
        return str(zlib.crc32(content))


def _open_anew(self, path, mode):
    if "w" in mode and self.exists(path):
        self.remove(path)  # TensorFlow would append to it, which no store does
    return _open(self, path, mode)


@contextlib.contextmanager
def mounted():
    """Makes `ram://` known, and the store that is away; yields the root of the former."""
    with contextlib.ExitStack() as changes:
        for holder, name, value in (
            (backend._TfBackend, "open", _open_anew),
            (gpath, "_URI_PREFIXES", (*gpath._URI_PREFIXES, "ram://")),
            (gpath, "_URI_SCHEMES", gpath._URI_SCHEMES | {"ram"}),
        ):
            changes.enter_context(mock.patch.object(holder, name, value))
        for known, added in (
            (gpath._URI_MAP_ROOT, {"ram://": "/ram/"}),
            (gpath._PREFIX_TO_BACKEND, {"ram": backend.tf_backend}),
            (register._URI_PREFIXES_TO_CLS, {"ram://": gpath.PosixGPath}),
            (storage.IMPLEMENTATIONS, dict.fromkeys(("ram", "s3"), f"{__name__}:EpathStorage")),
        ):
            changes.enter_context(mock.patch.dict(known, added))
        yield "ram://"
