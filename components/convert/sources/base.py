"""What a source is, and what reads one: all that the kinds of sources share."""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from components.convert.writing.column_store import Store
from components.convert.writing.splits import Rows
from components.convert.writing.tfrecord import Column, Layout
from trainer.base.errors import UserError
from trainer.base.files import digest_of
from trainer.base.manifest import Encoding, Feature

Paths = str | Sequence[str] | None


class Source(Protocol):
    """Examples as their authors split them, in memory or read as they are asked for.

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

    def features(self) -> tuple[Feature, ...]:
        """The manifest's."""

    def encodings(self, training: Rows) -> dict[str, tuple[Encoding, ...]]:
        """The manifest's `deep` and `wide`, if any, given which examples of `train` are for training."""


class Reader(Protocol):
    """Reads one kind of source.

    Attributes:
      name: As given with `--dataset`.
    """

    name: str

    def files(self, source: Paths) -> list[pathlib.Path]:
        """The files that `read` reads."""

    def read(self, source: Paths, store: Store) -> Source:
        """Reads the source; what the store has no room for is not held in memory."""


def one_path(dataset: str, source: str | Sequence[str]) -> pathlib.Path:
    """The path that `--source` gives to a dataset that takes one.

    Raises:
      UserError: If it gives more.
    """
    if not isinstance(source, str):
        raise UserError(f"--source {' '.join(source)}: dataset {dataset!r} takes one path, not {len(source)}")
    return pathlib.Path(source)


def digest_of_named(files: Iterable[tuple[str, str]]) -> str:
    """SHA-256 (hexadecimal) over names and checksums of contents, in this order."""
    digest = hashlib.sha256()
    for name, content in files:
        digest.update(f"{name}\0{content}\n".encode())
    return digest.hexdigest()


def digest_of_files(paths: Iterable[pathlib.Path]) -> str:
    """SHA-256 (hexadecimal) over the files' names, without their folders, and contents."""
    return digest_of_named((path.name, digest_of(path)) for path in paths)
