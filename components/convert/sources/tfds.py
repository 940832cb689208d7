"""Images with classes of TensorFlow Datasets (TFDS), by name.

    source = TfdsSource(name="tfds:mnist")
    examples = source.open("~/tensorflow_datasets", opening)

`--source` is a directory of prepared datasets, or one prepared dataset. Without it, the dataset is
looked for where TFDS keeps its own, and prepared there if need be.

What needs TFDS is done by another process, `python -m components.convert.sources.tfds NAME DIR
[STEM]`, because this process may have to fork, which does not work with TensorFlow's threads. It
prints what `describe` returns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np

from common import lifeline
from common.cli import as_list
from common.errors import UserError, did_you_mean
from common.storage.files import list_files
from common.storage.storage import File
from components.convert.source import Opening, Paths, Piece, Source
from components.convert.sources.images import ImageExamples, Picture
from components.convert.sources.tables import read_staged
from components.convert.splits import NAMES, SPLITS

if TYPE_CHECKING:
    from tensorflow_datasets.core import DatasetBuilder

TFDS = "tfds:"
_WIDTH = 1_000  # Most characters of a text from TFDS or a dataset's code in an error.
_BUCKETS, _MOUNT = "gs://", "/gcs/"  # Where steps on Vertex AI have all buckets as folders.
_BATCH = 64  # Number of the images that are written together.


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsSource(Source):
    """A dataset of TensorFlow Datasets; its name is `[tfds:]NAME[/CONFIG][:VERSION]`.

    Attributes:
      image_size: Height and width that a model gets; None to choose them by the images.
      encoding: `raw` to store pixels, `source` to store image files; None to choose by size.
    """

    name: str
    takes = frozenset({"image_size", "encoding"})
    image_size: tuple[int, int] | None = None
    encoding: str | None = None

    def files(self, paths: Paths) -> list[File]:
        """Returns the files of the dataset, sorted by path; prepares it first if need be.

        Args:
          paths: Directory of the dataset; None to download it.

        Raises:
          UserError: If there is no such directory or dataset, it does not have images with classes,
            or it cannot be read or prepared.
        """
        facts = self._describe(paths)
        directory = facts["directory"]
        if not facts["splits"]:
            print(f"TensorFlow Datasets prepares {facts['name']} in {directory}", flush=True)
            self._describe(paths, "")
        if str(paths).startswith(_BUCKETS):  # The store knows the checksums of all files.
            directory = directory.replace(_MOUNT, _BUCKETS, 1)
        return list_files(directory)

    def digest(self, paths: Paths) -> str:
        """Returns a digest of the source that changes when the source does.

        Args:
          paths: Directory of the dataset; None for that of TFDS.

        Returns:
          SHA-256 (hexadecimal) over the names and contents of the files; without a directory, of
          the dataset's name with its version.

        Raises:
          UserError: If there is no such directory or dataset, or it cannot be read.
        """
        if paths is not None:
            return super().digest(paths)
        return hashlib.sha256(self._describe(None)["name"].encode()).hexdigest()

    def open(self, paths: Paths, opening: Opening) -> TfdsExamples:
        """Stages the images of a dataset, in `images-<split>`; prepares it first if need be.

        Args:
          paths: Directory of the dataset; None for that of TFDS.
          opening: Settings and resources of the conversion.

        Raises:
          UserError: If the dataset cannot be read, or has no images for training.
        """
        stem = f"{opening.directory}/images"
        facts = self._describe(paths, stem)
        splits = facts["splits"]
        if others := [name for name in splits if name not in NAMES]:
            print(f"left out, being none of {', '.join(SPLITS)}: {', '.join(others)}", flush=True)
        if "train" not in facts["staged"]:
            raise UserError(
                f"dataset {self.name!r} has no training images, but {', '.join(splits)}"
            )
        examples = TfdsExamples(
            name=self.name,
            origin=f"TensorFlow Datasets, {facts['name']}",
            pieces=opening.even_pieces(
                facts["staged"],
                {split: os.path.getsize(f"{stem}-{split}") for split in facts["staged"]},
            ),
            class_names=tuple(facts["classes"]),
            arguments={"tfds": facts["name"]},
            stem=stem,
        )
        return examples.choose_storage(opening, self.image_size, self.encoding)

    def _describe(self, paths: Paths, *stem: str) -> Any:
        """Calls `describe` in another process, and returns its result.

        Args:
          paths: Directory of the dataset; None for that of TFDS.
          *stem: As `describe` takes it.

        Raises:
          UserError: If there is no such directory or dataset, it does not have images with classes,
            or it cannot be read or prepared.
        """
        folder = ""
        if paths:
            local = [path.replace(_BUCKETS, _MOUNT, 1) for path in as_list(paths)]
            wanted = f"DIR, prepared datasets or one of them; a bucket is mounted at {_MOUNT}"
            folder, _ = self.locate_one(local, wanted, needs_folder=True)
        child = subprocess.run(
            [sys.executable, "-m", __name__, self.name.removeprefix(TFDS), folder, *stem],
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsExamples(ImageExamples):
    """Images that are staged in a file for each split, `<stem>-<split>`."""

    stem: str

    def pictures(self, piece: Piece, *, heads_only: bool = False) -> Iterator[Picture]:
        """Yields the images of a piece with their classes; a `UserError` for one without."""
        start, stop = piece.part
        rows = read_staged(f"{self.stem}-{piece.split}", start, stop)
        for i, image, label in zip(range(start, stop), *rows.columns, strict=True):
            origin = f"{self.name}: image {i} of {piece.split}"
            number = label.as_py()
            if not 0 <= number < len(self.class_names):
                raise UserError(f"{origin}: has class {number}, which is none")
            yield Picture(origin=origin, content=io.BytesIO(image.as_py()), label=number)


def describe(name: str, folder: str, *stem: str) -> dict[str, Any]:
    """Describes a dataset with one 8-bit image and one `ClassLabel`, or ends this process.

    Only the features in `supervised_keys` count or, without these, all. If there are others, the
    error lists them.

    Args:
      name: Name of the dataset for TFDS.
      folder: Folder of prepared datasets, or of one; empty for that of TFDS.
      *stem: If there is one, the dataset is prepared; if it is not empty, the images and classes of
        our splits are also written to Arrow files `<stem>-<split>`.

    Returns:
      `name`, the full one, with the version; `directory`; `classes`, their names; `splits`, the
      names of those with examples, without any if the dataset is not prepared; `staged`, the
      number of images that were written of each of our splits.
    """
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()
    builder = _find(name, folder)
    info, features = builder.info, builder.info.features
    candidates = [key for key in features if key in (info.supervised_keys or features)]
    images, labels = (
        [key for key in candidates if type(features[key]) is kind]
        for kind in (tfds.features.Image, tfds.features.ClassLabel)
    )
    if not len(images) == len(labels) == 1 or features[images[0]].np_dtype != np.uint8:
        sys.exit(f"is not one 8-bit image with one ClassLabel: {shorten(repr(features), _WIDTH)}")
    if stem:
        config = tfds.download.DownloadConfig(try_download_gcs=False)
        builder.download_and_prepare(download_config=config)
    splits = info.splits.values() if builder.is_prepared() else ()
    names = [split.name for split in splits if split.num_examples]
    staged = {}
    for split in SPLITS if any(stem) else ():
        if natives := [native for native in names if NAMES.get(native) == split]:
            staged[split] = _stage(
                builder, "+".join(natives), images[0], labels[0], f"{stem[0]}-{split}"
            )
    return {
        "name": info.full_name,
        "directory": str(builder.data_path),
        "classes": features[labels[0]].names,
        "splits": names,
        "staged": staged,
    }


def _stage(builder: DatasetBuilder, split: str, image: str, label: str, path: str) -> int:
    """Writes the image files and classes of a split, in order, and returns their number."""
    import pyarrow as pa
    import tensorflow_datasets as tfds

    data = builder.as_dataset(
        split=split,
        decoders=tfds.decode.PartialDecoding(
            {image: True, label: True}, {image: tfds.decode.SkipDecoding()}
        ),
        read_config=tfds.ReadConfig(interleave_cycle_length=1),
    )
    schema, count = pa.schema([(image, pa.large_binary()), (label, pa.int64())]), 0
    with pa.ipc.new_file(path, schema) as writer:
        for batch in data.batch(_BATCH).as_numpy_iterator():
            writer.write_batch(pa.RecordBatch.from_pydict(batch, schema))
            count += len(batch[label])
    return count


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
