"""Sources: where examples come from before they are records.

    source = find_reader("mnist").read("downloads/mnist")
    source.splits["train"]["image"].shape     # (60000, 28, 28, 1)

A new kind of source is another `Reader` and an entry in `READERS`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from components.convert import cifar
from components.convert.csv_reader import CsvReader
from components.convert.images import IdxReader
from components.convert.tfrecord import Column, Layout
from trainer.errors import UserError, unknown
from trainer.manifest import Encoding, Feature

Paths = str | Sequence[str] | None


class Source(Protocol):
    """Examples as their authors split them, in memory.

    Attributes:
      name: Of the dataset.
      origin: Where it comes from, in words.
      class_names: In the order of the labels, which all lie in `range(len(class_names))`.
      splits: The native splits, `train` and whatever else there is of `validation` and `test`, each with its columns by
        name, in the source's order; `label` is among them.
      arguments: What decides the content beside the options.
    """

    name: str
    origin: str
    class_names: tuple[str, ...]
    splits: Mapping[str, Mapping[str, Column]]
    arguments: Mapping[str, Any]

    def layout(self) -> Layout:
        """How a record is laid out."""

    def features(self, training: np.ndarray) -> tuple[Feature, ...]:
        """The manifest's, given which examples of `train` are for training."""

    def encodings(self, training: np.ndarray) -> dict[str, tuple[Encoding, ...]]:
        """The manifest's `deep` and `wide`, if any."""


class Reader(Protocol):
    """Reads one kind of source.

    Attributes:
      name: As given with `--dataset`.
    """

    name: str

    def files(self, source: Paths) -> list[pathlib.Path]:
        """The files that `read` reads."""

    def read(self, source: Paths) -> Source:
        """Reads the source."""


_SCHEMAS = pathlib.Path(__file__).with_name("schemas")
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
    )
}


def find_reader(dataset: str, schema: str | None = None) -> Reader:
    """The reader of that name.

    Args:
      dataset: Its name.
      schema: A schema file for `csv`.

    Raises:
      UserError: If there is none, naming the nearest; if it takes no schema.
    """
    if dataset not in READERS:
        raise unknown("dataset", dataset, READERS)
    reader = READERS[dataset]
    if schema is None:
        return reader
    if not isinstance(reader, CsvReader) or reader.schema:
        raise UserError(f"--schema {schema} means nothing to dataset {dataset!r}; leave it out, or use --dataset csv")
    return dataclasses.replace(reader, schema=pathlib.Path(schema))


def source_digest(dataset: str, source: Paths, schema: str | None = None) -> str:
    """SHA-256 (hexadecimal) over the names and contents of a source's files: it changes when the source does.

    Raises:
      UserError: If the dataset is unknown or its files are missing.
    """
    digest = hashlib.sha256()
    for path in find_reader(dataset, schema).files(source):
        with open(path, "rb") as file:
            digest.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()
