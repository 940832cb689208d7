"""Sources by name: the values of `--dataset`.

    source = find_source("mnist")
    examples = source.open(find_paths("mnist", None), opening)      # Downloads the files.

A new kind of source is another subclass of `Source`, and an entry in `SOURCES`; the command,
its --help and the pipeline then know it. A source in `OFFERED` is downloaded unless its files
are given.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from common.errors import UserError, readable, unknown
from components.convert.source import Paths, Source, digest_of, downloads_dir
from components.convert.sources.arrays import ARRAYS
from components.convert.sources.downloads import OFFERED, download
from components.convert.sources.images import FolderSource
from components.convert.sources.tables import ENDINGS, TableSource
from components.convert.sources.tfds import TFDS as TFDS
from components.convert.sources.tfds import TfdsSource
from components.convert.sources.tfrecords import TfrecordSource

_SCHEMAS = pathlib.Path(__file__).parents[1] / "schemas"
_TABLE_OPTIONS = frozenset({"schema", "skip_bad"})

SOURCES: Mapping[str, Source] = {
    source.name: source
    for source in (
        *ARRAYS.values(),
        TableSource(name="taxi", schema=_SCHEMAS / "taxi.yaml"),
        TableSource(name="taxi_cents", schema=_SCHEMAS / "taxi_cents.yaml"),
        *(TableSource(name=kind, takes=_TABLE_OPTIONS, kind=kind) for kind in ENDINGS),
        FolderSource(),
        TfrecordSource(),
    )
}


def find_source(dataset: str, **options: object) -> Source:
    """Returns the source of a dataset.

    Args:
      dataset: Name of the dataset.
      **options: Options of the source by name; None for one that is not given.

    Raises:
      UserError: If there is no such dataset, or it does not take an option that is given.
    """
    # All are dataclasses, which the base class is not.
    source: Any = TfdsSource(name=dataset) if dataset.startswith(TFDS) else SOURCES.get(dataset)
    if source is None:
        raise UserError(
            f"{unknown('dataset', dataset, SOURCES)}, or {TFDS}NAME of TensorFlow Datasets"
        )
    options = {option: value for option, value in options.items() if value is not None}
    for option in options.keys() - source.takes:
        others = " or ".join(name for name, other in SOURCES.items() if option in other.takes)
        flag = f"--{option.replace('_', '-')}"
        raise UserError(
            f"{flag} means nothing to dataset {dataset!r}; leave it out, or use --dataset {others}"
        )
    return dataclasses.replace(source, **options)


def find_paths(dataset: str, paths: Paths) -> Paths:
    """Returns the paths of a dataset's files, which are downloaded if none are given.

    Args:
      dataset: Name of the dataset.
      paths: Value of `--source`.

    Returns:
      The given paths; else the path of the downloaded file, or of the folder of several. None if no
      path is given, and no files are offered for download.

    Raises:
      UserError: If the download fails.
    """
    if paths is None and dataset in OFFERED:
        files = download(OFFERED[dataset], downloads_dir() / dataset)
        return str(files[0] if len(files) == 1 else files[0].parent)
    return paths


def source_digest(dataset: str, paths: Paths, schema: str | None = None) -> str:
    """Returns a digest of a dataset's source that changes when the source does.

    Args:
      dataset: Name of the dataset.
      paths: Value of `--source`.
      schema: Path of the schema file.

    Returns:
      SHA-256 (hexadecimal) over the schema, and names and contents of the files. For files that are
      offered for download it is known without them.

    Raises:
      UserError: If there is no such dataset, it takes no schema and one is given, or its files
        cannot be read.
      ConnectionError: If a store does not answer.
    """
    if paths is None and dataset in OFFERED:
        return digest_of((file.name, file.sha256) for file in OFFERED[dataset])
    with readable(f"dataset {dataset!r}"):
        return find_source(dataset, schema=schema).digest(paths)
