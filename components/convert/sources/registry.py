"""Sources by name: the values of `--dataset`.

    source = find_source("mnist", "downloads/mnist")
    source = find_source("mnist", None)    # That of TensorFlow Datasets, which downloads the files.

A new kind of source is another subclass of `Source`, and an entry in `SOURCES`; the command,
its --help and the pipeline then know it.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from common.errors import UserError, unknown
from components.convert.source import Paths, Source
from components.convert.sources.arrays import ARRAYS
from components.convert.sources.images import FolderSource
from components.convert.sources.tables import ENDINGS, TableSource
from components.convert.sources.tfds import TFDS as TFDS
from components.convert.sources.tfds import TfdsSource

_SCHEMAS = pathlib.Path(__file__).parents[1] / "schemas"
_TABLE_OPTIONS = frozenset({"schema", "skip_bad"})
# Without `--source`, these are taken from TensorFlow Datasets, which has them by the same names.
DOWNLOADED = ("mnist", "fashion_mnist", "cifar10", "cifar100")

SOURCES: Mapping[str, Source] = {
    source.name: source
    for source in (
        *ARRAYS.values(),
        TableSource(name="taxi", schema=_SCHEMAS / "taxi.yaml"),
        TableSource(name="taxi_cents", schema=_SCHEMAS / "taxi_cents.yaml"),
        *(TableSource(name=kind, takes=_TABLE_OPTIONS, kind=kind) for kind in ENDINGS),
        FolderSource(),
    )
}


def find_source(dataset: str, paths: Paths, **options: object) -> Source:
    """Returns the source of a dataset.

    Args:
      dataset: Name of the dataset.
      paths: Value of `--source`.
      **options: Options of the source by name; None for one that is not given.

    Raises:
      UserError: If there is no such dataset, or it does not take an option that is given.
    """
    is_tfds = dataset.startswith(TFDS) or (paths is None and dataset in DOWNLOADED)
    # All are dataclasses, which the base class is not.
    source: Any = TfdsSource(name=dataset) if is_tfds else SOURCES.get(dataset)
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
