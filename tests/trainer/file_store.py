"""Local files by a scheme, as a store has one: TensorFlow knows it, and Python does not."""

import contextlib
import dataclasses
from unittest import mock

from etils.epath import backend, gpath, register

from common.storage import storage
from common.storage.local import LocalStorage

HERE = "file://here"  # TensorFlow does not mind the host.


def _local(path):
    return path.removeprefix(HERE)


class FileStorage(LocalStorage):
    """Files by `HERE` and a local path."""

    def stat(self, path):
        """Returns the file of a path."""
        return super().stat(_local(path))

    def read(self, path, max_bytes):
        """Returns the content of a file and its version."""
        return super().read(_local(path), max_bytes)

    def _open_temporary(self, path):
        return super()._open_temporary(_local(path))

    def _publish(self, temporary, file, writer):
        file = dataclasses.replace(file, path=_local(file.path))
        return super()._publish(temporary, file, writer)


@contextlib.contextmanager
def mounted():
    """Makes `HERE` known to epath and to `common.storage`."""
    prefixes, schemes = (*gpath._URI_PREFIXES, "file://"), gpath._URI_SCHEMES | {"file"}
    with contextlib.ExitStack() as changes:
        constants = {"_URI_PREFIXES": prefixes, "_URI_SCHEMES": schemes}
        changes.enter_context(mock.patch.multiple(gpath, **constants))
        for table, added in (
            (gpath._URI_MAP_ROOT, {"file://": "/file/"}),
            (gpath._PREFIX_TO_BACKEND, {"file": backend.tf_backend}),
            (register._URI_PREFIXES_TO_CLS, {"file://": gpath.PosixGPath}),
            (storage.IMPLEMENTATIONS, {"file": f"{__name__}:FileStorage"}),
        ):
            changes.enter_context(mock.patch.dict(table, added))
        yield
