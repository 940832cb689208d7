"""Datasets of TensorFlow Datasets (TFDS), by name.

    source = TfdsSource(name="tfds:mnist")
    examples = source.open("~/tensorflow_datasets", opening)

`--source` is a directory of prepared datasets, or one prepared dataset. Without it, the dataset is
looked for where TFDS keeps its own, and prepared there if need be.

Prepared files are TFRecord files, and are read as such. What needs TFDS itself is done by another
process, `python -m components.convert.sources.tfds NAME DIR [prepare]`, because this process may
have to fork, which does not work with TensorFlow's threads. It prints what `describe` returns.

A dataset with an 8-bit image and a `ClassLabel` needs no schema. For other datasets with images, a
schema says what is predicted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np

from common import lifeline
from common.cli import as_list
from common.errors import UserError, did_you_mean
from common.storage.files import list_files, require_file, sha256_of
from common.storage.storage import File
from components.convert.source import Examples, Opening, Paths, digest_of
from components.convert.sources.tfrecords import TfrecordSource
from components.convert.splits import NAMES

if TYPE_CHECKING:
    from tensorflow_datasets.core import DatasetBuilder

    from components.convert.schema import ImageSchema

TFDS = "tfds:"
_WIDTH = 1_000  # Most characters of a text from TFDS or a dataset's code in an error.
_BUCKETS, _MOUNT = "gs://", "/gcs/"  # Where steps on Vertex AI have all buckets as folders.


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsSource(TfrecordSource):
    """A dataset of TensorFlow Datasets; its name is `tfds:NAME[/CONFIG][:VERSION]`.

    One with an 8-bit image and a class needs no schema.
    """

    def files(self, paths: Paths) -> list[File]:
        """Returns the files of the dataset, sorted by path, once it has been prepared.

        Args:
          paths: Directory of the dataset; None to download it.

        Raises:
          UserError: If there is no such directory or dataset, or it cannot be read or prepared.
            That it needs a schema is found before it is downloaded.
        """
        directory = self._prepare(paths)["directory"]
        if str(paths).startswith(_BUCKETS):  # The store knows the checksums of all files.
            directory = directory.replace(_MOUNT, _BUCKETS, 1)
        return list_files(directory)

    def digest(self, paths: Paths) -> str:
        """Returns a digest of the source that changes when the source does.

        Args:
          paths: Directory of the dataset; None for that of TFDS.

        Returns:
          SHA-256 (hexadecimal) over the schema, and the names and contents of the files. Without a
          directory, over the schema, and the dataset's name with its version.

        Raises:
          UserError: If there is no such directory or dataset, or it cannot be read.
        """
        if paths is not None:
            return super().digest(paths)
        schema = sha256_of(self.schema) if self.schema else ""
        return digest_of([(self._describe(None)["name"], schema)])

    def open(self, paths: Paths, opening: Opening) -> Examples:
        """Opens the dataset, after it has been prepared if necessary.

        Args:
          paths: Directory of the dataset; None to download it.
          opening: Settings and resources of the conversion.

        Raises:
          UserError: If the dataset cannot be prepared, or is not what the schema says.
        """
        facts = self._prepare(paths)
        schema = self.load_schema() or self._own_schema(facts)
        splits: dict[str, list[File]] = {}
        for name, files in facts["splits"].items():
            if name in NAMES:
                splits.setdefault(NAMES[name], []).extend(map(require_file, files))
            else:
                print(f"left out, being none of train, validation and test: {name}", flush=True)
        return self.open_records(splits, schema, opening)

    def _prepare(self, paths: Paths) -> Any:
        """Prepares the dataset if necessary, and returns what `describe` returns of it then."""
        facts = self._describe(paths)
        if not facts["splits"]:
            if not self.schema:
                self._own_schema(facts)  # Raises its errors here already, before a download.
            print(
                f"TensorFlow Datasets prepares {facts['name']} in {facts['directory']}", flush=True
            )
            facts = self._describe(paths, "prepare")
        return facts

    def _describe(self, paths: Paths, *prepare: str) -> Any:
        """Returns what `describe` returns in another process.

        Args:
          paths: Directory of the dataset; None for that of TFDS.
          *prepare: `prepare` to prepare the dataset; else nothing.

        Raises:
          UserError: If there is no such directory or dataset, or it cannot be read or prepared.
        """
        folder = ""
        if paths:
            local = [path.replace(_BUCKETS, _MOUNT, 1) for path in as_list(paths)]
            folder = self.locate_folder(
                local, f"DIR, prepared datasets or one of them; a bucket is mounted at {_MOUNT}"
            )
        child = subprocess.run(
            [sys.executable, "-m", __name__, self.name.removeprefix(TFDS), folder, *prepare],
            capture_output=True,
            text=True,
        )
        if child.returncode:
            reason = child.stderr.strip().rpartition("\n")[2] or f"exit code {child.returncode}"
            raise UserError(
                f"dataset {self.name!r}: {reason}; name another one, or give a prepared one with "
                "--source DIR"
            )
        return json.loads(child.stdout.splitlines()[-1])  # The dataset's code may print too.

    def _own_schema(self, facts: Mapping[str, Any]) -> ImageSchema:
        """Returns the schema of an 8-bit image and a `ClassLabel`.

        A `UserError` is raised if the dataset is something else. It lists the features.
        """
        from components.convert.schema import ImageSchema

        if not facts["schema"]:
            raise UserError(
                f"dataset {self.name!r} needs --schema FILE of images, for it is not one 8-bit "
                f"image with one ClassLabel; its features are {facts['features']}"
            )
        name, _, version = facts["name"].rpartition("/")
        return ImageSchema.read(
            {
                "name": f"{TFDS}{name}",
                "origin": f"TensorFlow Datasets, {facts['name']}",
                "content": {"tfds": version},
                **facts["schema"],
            }
        )


def describe(name: str, folder: str, *prepare: str) -> dict[str, Any]:
    """Describes a dataset, as TFDS knows it.

    Args:
      name: Name of the dataset for TFDS.
      folder: Folder of prepared datasets, or of one; empty for that of TFDS.
      *prepare: Something if the dataset is to be prepared.

    Returns:
      `name`, the full one, with the version; `directory`; `splits`, the files of each split with
      examples, without any if the dataset is not prepared; `features`, as a text; `schema`, keys of
      an `ImageSchema`, or None if there are not exactly one 8-bit image and one `ClassLabel` among
      the features in `supervised_keys` or, without these, all.
    """
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()
    builder = _find(name, folder)
    if prepare:
        config = tfds.download.DownloadConfig(try_download_gcs=False)
        builder.download_and_prepare(download_config=config)
    info = builder.info
    features = info.features
    candidates = [key for key in features if key in (info.supervised_keys or features)]
    images, labels = (
        [key for key in candidates if type(features[key]) is kind]
        for kind in (tfds.features.Image, tfds.features.ClassLabel)
    )
    schema = None
    if len(images) == len(labels) == 1 and features[images[0]].np_dtype == np.uint8:
        schema = {"image": images[0], "label": labels[0], "classes": features[labels[0]].names}
    splits = info.splits.values() if builder.is_prepared() else ()
    return {
        "name": info.full_name,
        "directory": str(builder.data_path),
        "splits": {
            split.name: [*map(str, split.filepaths)] for split in splits if split.num_examples
        },
        "features": shorten(repr(features), _WIDTH),
        "schema": schema,
    }


def _find(name: str, folder: str) -> DatasetBuilder:
    """Returns the builder of a dataset, preferably of the prepared one; or ends this process."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import read_only_builder, registered

    if os.path.isfile(f"{folder}/features.json"):
        builder = tfds.builder_from_directory(folder)
        full_name = builder.info.full_name
        if not f"{full_name}/".startswith(name.replace(":", "/") + "/"):
            sys.exit(f"{folder} holds {TFDS}{full_name}")
        return builder
    with contextlib.suppress(registered.DatasetNotFoundError):
        return read_only_builder.builder_from_files(name, data_dir=folder or None)
    if not folder:
        with contextlib.suppress(registered.DatasetNotFoundError):
            return tfds.builder(name)
    names = os.listdir(folder) if folder else tfds.list_builders(with_community_datasets=False)
    nearest = did_you_mean(re.split("[/:]", name)[0], names, cutoff=0.5)
    sys.exit(f"{folder or 'TensorFlow Datasets'} has no such dataset{nearest}")


if __name__ == "__main__":
    lifeline.watch(os.getppid())
    try:
        print(json.dumps(describe(*sys.argv[1:])))
    except Exception as error:  # The dataset's own code may raise any type.
        sys.exit(shorten(f"{type(error).__name__}: {error}", _WIDTH))
