"""Datasets of TensorFlow Datasets, by name.

    reader = TfdsReader(name="tfds:mnist")
    cut = reader.cut("~/tensorflow_datasets", pieces=8, piece_bytes=1 << 26)
    source = reader.open(cut)

`--source` is a directory of prepared datasets, or one prepared dataset, or a directory of the files that one is
prepared from, under their original names; without it the dataset is downloaded. Prepared files are read here without
TensorFlow. Another process prepares them: this one may have to be forked, which TensorFlow's threads do not survive.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from common import quiet
from common.errors import UserError, unknown
from common.storage.files import list_files, require_file
from common.storage.storage import File, is_remote
from components.convert.pieces import Cut, Source
from components.convert.sources.base import Paths, Reader, digest_of, downloads_dir

if TYPE_CHECKING:
    from tensorflow_datasets.core import DatasetBuilder

TFDS = "tfds:"
_MOUNT = pathlib.Path("/gcs")  # where steps on Vertex AI see all buckets
_NAME = re.compile(r"(?P<dataset>[A-Za-z_]\w*)(/[^/:]+)?(:\d+\.\d+\.\d+)?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsReader(Reader):
    """Reads a dataset of TensorFlow Datasets.

    Attributes:
      name: `tfds:NAME[/CONFIG][:VERSION]`.
    """

    name: str
    takes = frozenset({"image_size", "encoding"})
    image_size: tuple[int, int] | None = None
    encoding: str | None = None

    def __post_init__(self):
        if not _NAME.fullmatch(self._tfds_name):
            raise UserError(f"dataset {self.name!r} is not {TFDS}NAME[/CONFIG][:VERSION], such as {TFDS}mnist:3.0.1")

    @property
    def _tfds_name(self) -> str:
        return self.name.removeprefix(TFDS)

    def files(self, source: Paths) -> list[File]:
        """The files of the prepared dataset, or those that it would be prepared from; none if they are downloaded.

        Of a bucket all that lies there: the store knows checksums, and to find out more would be to read.
        """
        given = self._given(source)
        if given and is_remote(str(source)):
            return list_files(str(source))
        prepared = self._find(given)
        directory = prepared.data_path if prepared else given
        return list_files(str(directory)) if directory else []

    def digest(self, source: Paths) -> str:
        """SHA-256 (hexadecimal) over the files of the source; of what is downloaded, over its name with the version."""
        if source is not None:
            return super().digest(source)
        return digest_of([((self._find(None) or self._builder()).info.full_name, "")])

    def cut(self, source: Paths, *, pieces: int, piece_bytes: int) -> Cut:
        """Cuts the dataset, which is prepared first if need be; that it cannot be had shows within seconds."""
        from components.convert.sources.examples import contents
        from components.convert.sources.tfds import features

        given = self._given(source)
        prepared = self._find(given) or self._prepare(given)
        splits = {split: [*map(require_file, paths)] for split, paths in features.splits(prepared).items()}
        cut = contents.cut(features.schema(prepared), splits)
        return dataclasses.replace(cut, facts={**cut.facts, "prepared": str(prepared.data_path)})

    def open(self, cut: Cut) -> Source:
        """What the records of the prepared dataset hold."""
        from components.convert.sources.examples import contents
        from components.convert.sources.tfds import features

        prepared = self._find(pathlib.Path(cut.facts["prepared"]))
        return contents.source(features.schema(prepared), cut, size=self.image_size, encoding=self.encoding)

    def _given(self, source: Paths) -> pathlib.Path | None:
        if source is None:
            return None
        if is_remote(str(source)):
            if not (mounted := _MOUNT / str(source).removeprefix("gs://")).is_dir():
                raise UserError(
                    f"{source}: dataset {self.name!r} is read from this machine; copy it, or mount the bucket"
                )
            source = str(mounted)
        return pathlib.Path(self.directory(source, "DIR, prepared datasets or the files that it is made from"))

    def _data_dir(self, given: pathlib.Path | None) -> pathlib.Path:
        """Where we keep what was prepared from the network, or from the files in a directory."""
        base = downloads_dir() / "tfds"
        if given is None:
            return base
        stamps = [(file.path, file.num_bytes, file.version) for file in list_files(str(given))]
        return base / f"from-{hashlib.sha256(repr(stamps).encode()).hexdigest()[:16]}"

    def _find(self, given: pathlib.Path | None) -> DatasetBuilder | None:
        """The prepared dataset, if there is one."""
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core import registered

        with self._told():
            if given and (given / "features.json").is_file():
                prepared, wanted = tfds.builder_from_directory(given), self._tfds_name.replace(":", "/")
                if not f"{prepared.info.full_name}/".startswith(f"{wanted}/"):
                    raise UserError(f"{given}: holds {TFDS}{prepared.info.full_name}, not {TFDS}{wanted}")
                return prepared
            # What others prepared, in the given directory or where TFDS keeps it; then what we did.
            for data_dir in (lambda: given, lambda: self._data_dir(given)):
                with contextlib.suppress(registered.DatasetNotFoundError):
                    return tfds.core.read_only_builder.builder_from_files(self._tfds_name, data_dir=data_dir())
        return None

    def _builder(self, data_dir: pathlib.Path | None = None) -> DatasetBuilder:
        """The code that prepares the dataset."""
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core import registered

        try:
            with self._told(), quiet.without_advice():  # the code of some imports TensorFlow
                return tfds.builder(self._tfds_name, data_dir=data_dir)
        except registered.DatasetNotFoundError:
            name = _NAME.fullmatch(self._tfds_name)["dataset"]
            known = tfds.list_builders(with_community_datasets=False)
            nearest = str(unknown("dataset of TensorFlow Datasets", name, known)).partition(" (known")[0]
            raise UserError(f"{nearest}; a prepared one of your own is read with --source DIR") from None

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Tells in one line what TFDS or a dataset's code raises, of whatever type it is."""
        from tensorflow_datasets.core import registered

        try:
            yield
        except (UserError, registered.DatasetNotFoundError):
            raise
        except Exception as error:
            raise UserError(f"dataset {self.name!r}: {_one_line(error)}") from None

    def _prepare(self, given: pathlib.Path | None) -> DatasetBuilder:
        """Has the dataset prepared: downloaded, or from the given files."""
        data_dir = self._data_dir(given)
        builder = self._builder(data_dir)
        needed = {url: info.filename for url, info in (builder.url_infos or {}).items()}
        absent = {url: name for url, name in needed.items() if not (given and (given / name).is_file())}
        if builder.MANUAL_DOWNLOAD_INSTRUCTIONS and given is None:
            raise UserError(
                f"dataset {self.name!r} cannot be downloaded; get its files and give --source DIR: "
                f"{_one_line(builder.MANUAL_DOWNLOAD_INSTRUCTIONS)}"
            )
        if absent and not builder.MANUAL_DOWNLOAD_INSTRUCTIONS:
            from components.convert.sources.downloads import download  # what it needs is slow to import

            missing = f"missing {', '.join(absent.values())}"
            lacks = f"{given}: holds neither {self.name} prepared nor all its files ({missing}); " if given else ""
            # It would try for minutes itself, and say nothing meanwhile.
            download.require_reachable(absent, lacks)
        print(f"TensorFlow Datasets prepares {builder.info.full_name} in {data_dir}", flush=True)
        command = [sys.executable, "-m", "components.convert.sources.tfds.prepare", self._tfds_name, str(data_dir)]
        path = os.pathsep.join(filter(None, sys.path))
        child = subprocess.run(
            [*command, *([str(given)] if given else [])],
            env={**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"},
            stderr=None if sys.stderr.isatty() else subprocess.PIPE,
            text=True,
        )
        prepared = self._find(given)
        if child.returncode or not prepared:
            last = (child.stderr or "it says why above").strip().splitlines()[-1]
            raise UserError(f"TensorFlow Datasets cannot prepare {self.name}: {last}; see --source")
        return prepared


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:400]
