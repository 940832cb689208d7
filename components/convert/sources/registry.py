"""Sources: where examples come from before they are records.

    source = find_reader("mnist").read("downloads/mnist")
    source.splits["train"]["image"].shape     # (60000, 28, 28, 1)

A new kind of source is another `Reader` and an entry in `_FROM_FILES`.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping

from components.convert.sources import cifar
from components.convert.sources.base import Paths, Reader, digest_of_files
from components.convert.sources.delimited import CsvReader
from components.convert.sources.downloads.catalog import OFFERED, Published
from components.convert.sources.examples.dataset_files import TfrecordReader
from components.convert.sources.idx import IdxReader
from components.convert.sources.image_folder import FolderReader
from components.convert.sources.tfds.builder import TFDS, TfdsReader
from trainer.base.errors import UserError, unknown

_SCHEMAS = pathlib.Path(__file__).parents[1] / "tables" / "schemas"
_FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")

_FROM_FILES: Mapping[str, Reader] = {
    reader.name: reader
    for reader in (
        IdxReader(
            name="digits",
            origin="Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, CC BY 4.0",
            value_range=(0.0, 16.0),
            embedded=pathlib.Path(__file__).with_name("digits"),
            prefixes={"train": ""},
            required=frozenset({"train"}),
        ),
        IdxReader(name="mnist", origin="MNIST, original IDX files"),
        IdxReader(name="fashion_mnist", origin="Fashion-MNIST, original IDX files", class_names=_FASHION),
        IdxReader(name="idx", origin="IDX files", class_names=None, required=frozenset({"train"})),
        cifar.CIFAR10,
        cifar.CIFAR100,
        CsvReader(name="taxi", schema=_SCHEMAS / "taxi.yaml"),
        CsvReader(name="taxi_cents", schema=_SCHEMAS / "taxi_cents.yaml"),
        CsvReader(name="csv"),
        FolderReader(),
        TfrecordReader(),
    )
}
READERS: Mapping[str, Reader] = {
    name: Published(reader=reader, offered=OFFERED[name]) if name in OFFERED else reader
    for name, reader in _FROM_FILES.items()
}


def find_reader(
    dataset: str,
    *,
    schema: str | None = None,
    image_size: tuple[int, int] | None = None,
    encoding: str | None = None,
    download_dir: str | None = None,
) -> Reader:
    """The reader of that name.

    Args:
      dataset: Its name.
      schema: A schema file for `csv` or `tfrecord`.
      image_size: Height and width that a model gets, for datasets of image files.
      encoding: How these are stored, `raw` or `source`.
      download_dir: For datasets that can be downloaded.

    Raises:
      UserError: If there is none, naming the nearest; if something else means nothing to it.
    """
    reader = TfdsReader(name=dataset) if dataset.startswith(TFDS) else READERS.get(dataset)
    if reader is None:
        raise UserError(f"{unknown('dataset', dataset, READERS)}, or {TFDS}NAME of TensorFlow Datasets")
    schema = pathlib.Path(schema) if schema else None
    given = {"schema": schema, "image_size": image_size, "encoding": encoding, "download_dir": download_dir}
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if getattr(reader, name, "") is not None:
            repair = ", or use --dataset csv or tfrecord" if name == "schema" else ""
            shown = "x".join(map(str, value)) if name == "image_size" else value
            flag = f"--{name.replace('_', '-')} {shown}"
            raise UserError(f"{flag} means nothing to dataset {dataset!r}; leave it out{repair}")
    return dataclasses.replace(reader, **given)


def source_digest(dataset: str, source: Paths, schema: str | None = None) -> str:
    """SHA-256 (hexadecimal) over the names and contents of a source's files: it changes when the source does.

    Raises:
      UserError: If the dataset is unknown or its files are missing.
    """
    reader = find_reader(dataset, schema=schema)
    own = getattr(reader, "digest", None)
    return own(source) if own else digest_of_files(reader.files(source))
