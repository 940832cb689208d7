"""Sources: where examples come from before they are records.

    source = read("mnist", "downloads/mnist", store)
    source.splits["train"]["image"].shape     # (60000, 28, 28, 1)

A new kind of source is another `Reader` and an entry in `READERS`: the command, its --help and the pipeline know it
then. One that is `OFFERED` is downloaded unless its source is given.
"""

import dataclasses
import pathlib
from collections.abc import Mapping

from common.errors import UserError, readable, unknown
from components.convert.sources import cifar
from components.convert.sources.base import Paths, Reader, digest_of, downloads_dir
from components.convert.sources.bigquery import BigQueryReader
from components.convert.sources.delimited import TextReader
from components.convert.sources.downloads.catalog import OFFERED
from components.convert.sources.examples.dataset_files import TfrecordReader
from components.convert.sources.idx import IdxReader
from components.convert.sources.image_folder import FolderReader
from components.convert.sources.parquet import ParquetReader
from components.convert.sources.tfds.builder import TFDS, TfdsReader

_SCHEMAS = pathlib.Path(__file__).parents[1] / "tables" / "schemas"
_FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")

READERS: Mapping[str, Reader] = {
    reader.name: reader
    for reader in (
        IdxReader(
            name="digits",
            origin="Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, CC BY 4.0",
            value_range=(0.0, 16.0),
            embedded=pathlib.Path(__file__).with_name("digits"),
            prefixes={"train": ""},
        ),
        IdxReader(name="mnist", origin="MNIST, original IDX files"),
        IdxReader(name="fashion_mnist", origin="Fashion-MNIST, original IDX files", class_names=_FASHION),
        IdxReader(name="idx", origin="IDX files", class_names=None, required=frozenset({"train"})),
        cifar.CIFAR10,
        cifar.CIFAR100,
        TextReader(name="taxi", schema=_SCHEMAS / "taxi.yaml"),
        TextReader(name="taxi_cents", schema=_SCHEMAS / "taxi_cents.yaml"),
        TextReader(name="csv", takes=frozenset({"schema", "skip_bad"})),
        TextReader(name="jsonl", takes=frozenset({"schema", "skip_bad"}), json=True),
        ParquetReader(),
        BigQueryReader(),
        FolderReader(),
        TfrecordReader(),
    )
}


def find_reader(dataset: str, **options: object) -> Reader:
    """The reader of that name, with options that it has to take, each None if it is not given."""
    reader = TfdsReader(name=dataset) if dataset.startswith(TFDS) else READERS.get(dataset)
    if reader is None:
        raise UserError(f"{unknown('dataset', dataset, READERS)}, or {TFDS}NAME of TensorFlow Datasets")
    given = {option: value for option, value in options.items() if value is not None}
    for option in given.keys() - reader.takes:
        others = " or ".join(name for name, other in READERS.items() if option in other.takes)
        value = "x".join(map(str, given[option])) if isinstance(given[option], tuple) else given[option]
        flag = f"--{option.replace('_', '-')} {value}"
        raise UserError(f"{flag} means nothing to dataset {dataset!r}; leave it out, or use --dataset {others}")
    return dataclasses.replace(reader, **given) if given else reader


def located(dataset: str, source: Paths, **options: object) -> tuple[Reader, Paths]:
    """The reader of a dataset, and where its source is, which is downloaded if it is not given; options as of `find_reader`."""
    reader = find_reader(dataset, **options)
    if source is None and dataset in OFFERED:
        from components.convert.sources.downloads import download  # what it needs is slow to import

        paths = download.fetch(OFFERED[dataset], downloads_dir() / dataset)
        source = str(paths[0] if len(paths) == 1 else paths[0].parent)
    return reader, source


def source_digest(dataset: str, source: Paths, schema: str | None = None) -> str:
    """SHA-256 (hexadecimal) over the names and contents of a source's files: it changes when the source does.

    Of files that are to be downloaded it is known beforehand.
    """
    if source is None and dataset in OFFERED:
        return digest_of((file.name, file.sha256) for file in OFFERED[dataset])
    with readable(f"dataset {dataset!r}"):
        return find_reader(dataset, schema=schema).digest(source)
