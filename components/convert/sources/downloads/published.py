"""Datasets that are downloaded unless `--source` is given.

reader = Published(reader=IdxReader(name="mnist", origin="MNIST"), offered=OFFERED["mnist"])
source = reader.read(None, store)
"""

from __future__ import annotations

import dataclasses
import os
import pathlib

from components.convert.sources.base import Paths, Reader, Source, digest_of
from components.convert.sources.downloads.catalog import RemoteFile
from components.convert.writing.column_store import MEMORY, Store


def cache_dir() -> pathlib.Path:
    """Where downloads are kept: in the user's cache (https://specifications.freedesktop.org/basedir-spec)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return pathlib.Path(base if os.path.isabs(base) else "~/.cache").expanduser() / "tfrecord-training-pipeline"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published(Reader):
    """Reads a dataset from `--source`, or downloads it.

    Attributes:
      reader: Of the files.
      offered: What is downloaded: a directory's files, or the one file that is the source.
      download_dir: Where to; None for a folder of the user's cache.
    """

    reader: Reader
    offered: tuple[RemoteFile, ...]
    download_dir: str | None = None

    @property
    def name(self) -> str:
        """As given with `--dataset`."""
        return self.reader.name

    @property
    def takes(self) -> frozenset[str]:
        """What the reader of the files takes, and where to download to."""
        return self.reader.takes | {"download_dir"}

    def given(self, *, download_dir: str | None = None, **options: object) -> Published:
        """The same with options that it takes."""
        return dataclasses.replace(self, reader=self.reader.given(**options), download_dir=download_dir)

    def files(self, source: Paths) -> list[pathlib.Path]:
        """The files that `read` reads; downloaded, if there is no source."""
        return self.reader.files(self._source(source))

    def digest(self, source: Paths) -> str:
        """SHA-256 (hexadecimal) over the files; of those to be downloaded it is known beforehand."""
        if source is not None:
            return self.reader.digest(source)
        return digest_of((file.name, file.sha256) for file in self.offered)

    def read(self, source: Paths, store: Store = MEMORY) -> Source:
        """Reads the source, or what was downloaded."""
        return self.reader.read(self._source(source), store)

    def _source(self, source: Paths) -> Paths:
        if source is not None:
            return source
        from components.convert.sources.downloads import download  # what it needs is slow to import

        directory = pathlib.Path(self.download_dir) if self.download_dir else cache_dir()
        paths = download.fetch(self.offered, directory / self.name)
        return str(paths[0] if len(paths) == 1 else paths[0].parent)
