"""TensorFlow's file system in memory, reached by epath exactly as `gs://` is: the same back end and the same files."""

import contextlib
from collections.abc import Iterator
from typing import IO
from unittest import mock

from etils.epath import backend, gpath, register

# TensorFlow has no file system for it, so whatever is asked fails: for who asks it is a store that is away.
AWAY = "s3://bucket/away"
_open = backend._TfBackend.open


def _open_anew(self: backend.Backend, path: str, mode: str) -> contextlib.AbstractContextManager[IO]:
    if "w" in mode and self.exists(path):
        self.remove(path)  # TensorFlow would append to it, which no store does
    return _open(self, path, mode)


@contextlib.contextmanager
def mounted() -> Iterator[str]:
    """Lets epath know `ram://`; gives its root."""
    with contextlib.ExitStack() as changes:
        for holder, name, value in (
            (backend._TfBackend, "open", _open_anew),
            (gpath, "_URI_PREFIXES", (*gpath._URI_PREFIXES, "ram://")),
            (gpath, "_URI_SCHEMES", gpath._URI_SCHEMES | {"ram"}),
            (gpath, "_URI_MAP_ROOT", {**gpath._URI_MAP_ROOT, "ram://": "/ram/"}),
            (gpath, "_PREFIX_TO_BACKEND", {**gpath._PREFIX_TO_BACKEND, "ram": backend.tf_backend}),
            (register, "_URI_PREFIXES_TO_CLS", {**register._URI_PREFIXES_TO_CLS, "ram://": gpath.PosixGPath}),
        ):
            changes.enter_context(mock.patch.object(holder, name, value))
        yield "ram://"
