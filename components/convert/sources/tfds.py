"""Datasets of TensorFlow Datasets (TFDS), by name.

    source = TfdsSource(name="tfds:mnist")
    examples = source.open("~/tensorflow_datasets", opening)

`--source` is a directory of prepared datasets, or one prepared dataset, or a directory with
the files from which a dataset is prepared, under their original names. Without it, the dataset
is downloaded.

Prepared files are TFRecord files, and are read as such, without TensorFlow. A dataset is prepared
in another process, `python -m components.convert.sources.tfds NAME DATA_DIR MANUAL_DIR`, because
this process may have to fork, which does not work with TensorFlow's threads.

A dataset with an 8-bit image and a `ClassLabel` needs no schema. For other datasets with images, a
schema says what is predicted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Mapping
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np

from common import lifeline, quiet
from common.errors import UserError, reading, unknown
from common.storage.files import list_files, require_file, sha256_of
from common.storage.storage import File, is_remote
from components.convert.source import Examples, Opening, Paths, Source, digest_of, downloads_dir
from components.convert.sources import downloads
from components.convert.splits import NAMES

if TYPE_CHECKING:
    from tensorflow_datasets.core import DatasetBuilder, DatasetInfo

    from components.convert.schema import ImageSchema

TFDS = "tfds:"
_WIDTH = 400  # Most characters of a text from TFDS or a dataset's code in an error.
_REPAIR = "name another one, or see --source"
_MOUNT = pathlib.Path("/gcs")  # Folder in which steps on Vertex AI have all buckets.
_NAME = re.compile(r"[A-Za-z_]\w*(/[^/:]+)?(:\d+\.\d+\.\d+)?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsSource(Source):
    """A dataset of TensorFlow Datasets; its name is `tfds:NAME[/CONFIG][:VERSION]`.

    Attributes:
      schema: Path of the schema file of the images; None for an 8-bit image with a class.
      image_size: Height and width that a model gets; None to choose them by the images.
      encoding: `raw` to store pixels, `source` to store image files; None to choose by size.
    """

    name: str
    takes = frozenset({"schema", "image_size", "encoding"})
    schema: str | None = None
    image_size: tuple[int, int] | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self._tfds_name):
            raise UserError(
                f"dataset {self.name!r} is not {TFDS}NAME[/CONFIG][:VERSION], such as "
                f"{TFDS}mnist:3.0.1"
            )

    @property
    def _tfds_name(self) -> str:
        return self.name.removeprefix(TFDS)

    def files(self, paths: Paths) -> list[File]:
        """Returns the files of the dataset, after it has been prepared if necessary.

        Args:
          paths: Directory of the dataset; None to download it.

        Returns:
          The files, sorted by path. For a bucket, all files in the directory.

        Raises:
          UserError: If the directory does not exist, cannot be read from this machine, or holds
            another dataset, or if the dataset cannot be prepared.
        """
        source_dir = self._source_dir(paths)
        if is_remote(str(paths)):
            # The store knows the checksums of all files. To find the dataset among them would mean
            # reading some.
            return list_files(str(paths))
        prepared = self._find(source_dir) or self._prepare(source_dir)
        return list_files(prepared.data_path)

    def digest(self, paths: Paths) -> str:
        """Returns a digest of the source that changes when the source does.

        Args:
          paths: Directory of the dataset; None if it is downloaded.

        Returns:
          SHA-256 (hexadecimal) over the schema, and the names and contents of the files. For a
          dataset that is downloaded, over the schema, and the dataset's name with its version.

        Raises:
          UserError: If there is no such directory or dataset, or it cannot be read.
        """
        if paths is not None:
            return super().digest(paths)
        full_name = (self._find(None) or self._builder()).info.full_name
        return digest_of([(full_name, sha256_of(self.schema) if self.schema else "")])

    def open(self, paths: Paths, opening: Opening) -> Examples:
        """Opens the dataset, after it has been prepared if necessary.

        Args:
          paths: Directory of the dataset; None to download it.
          opening: Settings and resources of the conversion.

        Raises:
          UserError: If the dataset cannot be prepared, or is not what the schema says. That it
            cannot be downloaded, or needs a schema, is found within seconds.
        """
        from components.convert.sources import tfrecords

        source_dir = self._source_dir(paths)
        prepared = self._find(source_dir) or self._prepare(source_dir)
        schema = self._schema(prepared.info)
        splits = self._split_files(prepared.info)
        return tfrecords.open_records(schema, splits, opening, self.image_size, self.encoding)

    def _source_dir(self, paths: Paths) -> pathlib.Path | None:
        if paths is None:
            return None
        if is_remote(str(paths)):
            mounted = _MOUNT / str(paths).removeprefix("gs://")
            if not mounted.is_dir():
                raise UserError(
                    f"{paths}: dataset {self.name!r} is read from this machine; copy it, or mount "
                    "the bucket"
                )
            paths = str(mounted)
        return pathlib.Path(
            self.locate_folder(paths, "DIR, prepared datasets or the files that it is made from")
        )

    def _data_dir(self, source_dir: pathlib.Path | None) -> pathlib.Path:
        """Returns the folder in which this program prepares the dataset.

        It is in the user's cache, and may not exist yet.

        Args:
          source_dir: Directory of the files from which the dataset is prepared; None for downloads.
        """
        base = downloads_dir() / "tfds"
        if source_dir is None:
            return base
        digest = digest_of((file.path, repr(file)) for file in list_files(source_dir))
        return base / f"from-{digest[:16]}"

    def _find(self, source_dir: pathlib.Path | None) -> DatasetBuilder | None:
        """Returns the prepared dataset; None if there is none.

        Args:
          source_dir: Directory of the dataset, or of several; None for the one that TFDS uses by
            default. What is not there may be in `_data_dir`, which is searched next.

        Raises:
          UserError: If the directory holds another dataset, or the dataset cannot be read.
        """
        from tensorflow_datasets.core import read_only_builder, registered

        with reading(f"dataset {self.name!r}", _REPAIR):
            if source_dir and (source_dir / "features.json").is_file():
                prepared = read_only_builder.builder_from_directory(source_dir)
                name = prepared.info.full_name
                if not f"{name}/".startswith(self._tfds_name.replace(":", "/") + "/"):
                    raise UserError(f"{source_dir}: holds {TFDS}{name}, not {self.name}")
                return prepared
            # First what others have prepared, in the given directory or where TFDS keeps it by
            # default, and then what this program has prepared.
            for data_dir in (source_dir, self._data_dir(source_dir)):
                with contextlib.suppress(registered.DatasetNotFoundError):
                    return read_only_builder.builder_from_files(self._tfds_name, data_dir=data_dir)
        return None

    def _builder(self, data_dir: pathlib.Path | None = None) -> DatasetBuilder:
        """Returns the TFDS builder, which can prepare the dataset.

        Args:
          data_dir: Folder for what is prepared; None for the one that TFDS uses by default.

        Raises:
          UserError: If TFDS has no such dataset, or its code fails.
        """
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core import registered

        with reading(f"dataset {self.name!r}", _REPAIR):
            try:
                with quiet.without_advice():  # The code of some datasets imports TensorFlow.
                    return tfds.builder(self._tfds_name, data_dir=data_dir)
            except registered.DatasetNotFoundError:
                name = re.split("[/:]", self._tfds_name)[0]
                known = tfds.list_builders(with_community_datasets=False)
                nearest = str(unknown("dataset of TensorFlow Datasets", name, known)).partition(
                    " (known"
                )[0]
                raise UserError(
                    f"{nearest}; a prepared one of your own is read with --source DIR"
                ) from None

    def _prepare(self, source_dir: pathlib.Path | None) -> DatasetBuilder:
        """Prepares the dataset in another process, and returns it.

        Args:
          source_dir: Directory of the files from which it is prepared; None to download them.

        Raises:
          UserError: If that fails, or the dataset needs a schema.
        """
        data_dir = self._data_dir(source_dir)
        builder = self._builder(data_dir)
        self._schema(builder.info)  # Raises its errors here already, before a download.
        self._require_files(builder, source_dir)
        print(f"TensorFlow Datasets prepares {builder.info.full_name} in {data_dir}", flush=True)
        child = subprocess.run(
            [
                sys.executable,
                "-m",
                __name__,
                self._tfds_name,
                data_dir,
                source_dir or data_dir,
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        prepared = self._find(source_dir)
        if child.returncode or not prepared:
            reason = child.stderr.strip().rpartition("\n")[2] or f"exit code {child.returncode}"
            raise UserError(
                f"TensorFlow Datasets cannot prepare {self.name}: {reason}; see --source"
            )
        return prepared

    def _require_files(self, builder: DatasetBuilder, source_dir: pathlib.Path | None) -> None:
        """Checks that the files of a dataset are in the directory, or can be downloaded.

        Nothing is checked of a dataset whose files people have to get, if a directory is given:
        their names are not known here.

        Args:
          builder: Builder of the dataset.
          source_dir: Directory of files; None to download all of them.

        Raises:
          UserError: If some files are missing and no host that has them can be reached; or if
            people have to get the files, and no directory is given.
        """
        instructions = builder.MANUAL_DOWNLOAD_INSTRUCTIONS
        if instructions and source_dir is None:
            raise UserError(
                f"dataset {self.name!r} cannot be downloaded; get its files and give --source "
                f"DIR: {shorten(instructions, _WIDTH)}"
            )
        # If people have to get the files, only the dataset's code knows their names.
        files = {} if instructions else builder.url_infos or {}
        names = {url: info.filename for url, info in files.items()}
        missing = {
            url: name
            for url, name in names.items()
            if not (source_dir and (source_dir / name).is_file())
        }
        listed = ", ".join(missing.values())
        prefix = (
            f"{source_dir}: holds neither {self.name} prepared nor all its files (missing "
            f"{listed}); "
        )
        # TFDS would try to reach the hosts for minutes, without a message.
        downloads.require_reachable(missing, prefix if source_dir else "")

    def _schema(self, info: DatasetInfo) -> ImageSchema:
        """Returns the given schema, or that of an 8-bit image and a `ClassLabel`.

        Without a schema file, these are the features in `supervised_keys`, or else the only ones of
        their kinds.

        Raises:
          UserError: If the schema file cannot be used. Without one, if there are not exactly one
            such image and one such label; the message lists the features.
        """
        from components.convert.schema import ImageSchema
        from components.convert.sources.tfrecords import image_schema

        if self.schema:
            return image_schema(self.schema, self.name)
        features = _flat(info.features)
        candidates = [key for key in features if key in (info.supervised_keys or features)]
        images = [key for key in candidates if type(features[key]).__name__ == "Image"]
        labels = [key for key in candidates if type(features[key]).__name__ == "ClassLabel"]
        if len(images) != 1 or len(labels) != 1 or features[images[0]].np_dtype != np.uint8:
            listed = ", ".join(
                f"{key}: {shorten(repr(feature), _WIDTH)}" for key, feature in features.items()
            )
            raise UserError(
                f"dataset {self.name!r} needs --schema FILE of images, for it is "
                f"not one 8-bit image with one ClassLabel; its features are {listed}"
            )
        return ImageSchema.read(
            {
                "name": f"{TFDS}{info.full_name.rpartition('/')[0]}",
                "origin": f"TensorFlow Datasets, {info.full_name}",
                "image": images[0],
                "label": labels[0],
                "classes": features[labels[0]].names,
                "content": {"tfds": str(info.version)},
            }
        )

    def _split_files(self, info: DatasetInfo) -> dict[str, list[File]]:
        taken = {
            name: split
            for name, split in info.splits.items()
            if name in NAMES and split.num_examples
        }
        files = {
            NAMES[name]: [*map(require_file, split.filepaths)] for name, split in taken.items()
        }
        if "train" not in files or len(files) < len(taken):
            raise UserError(
                f"dataset {self.name!r} needs examples in one split train, and at most one each of "
                f"validation and test; it has {', '.join(info.splits) or 'none'}"
            )
        if others := sorted(info.splits.keys() - taken):
            print(f"left out, being none of train, validation and test: {', '.join(others)}")
        return files


def _flat(features: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the features by the keys that they have in a record, such as `outer/inner`."""
    flat: dict[str, Any] = {}
    for key, feature in sorted(features.items()):
        if type(feature).__name__ == "FeaturesDict":
            flat |= {f"{key}/{inner}": value for inner, value in _flat(feature).items()}
        else:
            flat[key] = feature
    return flat


def main(name: str, data_dir: str, manual_dir: str) -> str | None:
    """Prepares a dataset, from files in a folder or from downloads.

    Args:
      name: Name of the dataset for TFDS.
      data_dir: Folder for what is prepared.
      manual_dir: Folder of the files that TFDS does not download.

    Returns:
      None if all went well; else what went wrong, in one line.
    """
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()
    config = tfds.download.DownloadConfig(manual_dir=manual_dir, try_download_gcs=False)
    try:
        tfds.builder(name, data_dir=data_dir).download_and_prepare(download_config=config)
    except Exception as error:  # The dataset's own code may raise any type.
        return f"{type(error).__name__}: {shorten(str(error), _WIDTH)}"
    return None


if __name__ == "__main__":
    lifeline.watch(os.getppid(), lambda: os._exit(1))
    sys.exit(main(*sys.argv[1:]))
