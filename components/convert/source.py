"""Sources: where the images come from before they are records.

    source = find_reader("mnist").read("downloads/mnist")
    source.splits["train"]["image"].shape     # (60000, 28, 28, 1)

A reader is anything with a name, `files` and `read`; a new kind of source is another class and an entry in `READERS`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
from collections.abc import Mapping

import numpy as np

from components.convert import idx
from trainer.errors import UserError, unknown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A dataset as its authors split it.

    Attributes:
      name: As given with `--dataset`.
      origin: Where it comes from, in words.
      splits: Its native splits: `train`, and `test` or `validation` if it has them. Each has the columns `image`,
        uint8 [N, height, width, channels] of one shape, and `label`, integers [N], both in the source's order.
      class_names: In the order of the labels, which all lie in `range(len(class_names))`.
      value_range: Smallest and largest value that a pixel can have.
    """

    name: str
    origin: str
    splits: Mapping[str, Mapping[str, np.ndarray]]
    class_names: tuple[str, ...]
    value_range: tuple[float, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class IdxReader:
    """Reads a set of IDX files.

    Attributes:
      name: As given with `--dataset`.
      origin: Where the set comes from, in words.
      class_names: None for the numbers from 0 to the largest label.
      value_range: Smallest and largest value that a pixel can have.
      embedded: Directory of a set that we ship; None if `--source` gives it.
      prefixes: By native split, what its file names start with.
      required: Native splits that must be there.
    """

    name: str
    origin: str
    class_names: tuple[str, ...] | None = tuple("0123456789")
    value_range: tuple[float, float] = (0.0, 255.0)
    embedded: pathlib.Path | None = None
    prefixes: Mapping[str, str] = dataclasses.field(default_factory=lambda: {"train": "train-", "test": "t10k-"})
    required: frozenset[str] = frozenset({"train", "test"})

    def files(self, source: str | None) -> list[pathlib.Path]:
        """The files that `read` reads."""
        return [path for pair in self._pairs(source).values() for path in pair]

    def read(self, source: str | None) -> Source:
        """Reads the set from the directory `source`, or the embedded one.

        Raises:
          UserError: If `source` or a file is missing, or a file is not what it should be.
        """
        pairs = self._pairs(source)
        splits = {
            split: dict(zip(("image", "label"), idx.read_pair(*pair), strict=True)) for split, pair in pairs.items()
        }
        largest = max(int(columns["label"].max()) for columns in splits.values())
        class_names = self.class_names or tuple(str(label) for label in range(largest + 1))
        height, width, _ = splits["train"]["image"].shape[1:]
        for split, (images, labels) in pairs.items():
            if (shape := splits[split]["image"].shape[1:3]) != (height, width):
                raise UserError(f"{images}: images of {shape[0]} x {shape[1]} pixels; {height} x {width} in train")
            if (label := splits[split]["label"].max()) >= len(class_names):
                raise UserError(f"{labels}: label {label}; {self.name} has classes 0 to {len(class_names) - 1}")
        return Source(
            name=self.name,
            origin=self.origin,
            splits=splits,
            class_names=class_names,
            value_range=self.value_range,
        )

    def _pairs(self, source: str | None) -> dict[str, tuple[pathlib.Path, pathlib.Path]]:
        if self.embedded and source is not None:
            raise UserError(f"dataset {self.name!r} is built in; leave out --source {source}, or use --dataset idx")
        if not self.embedded and source is None:
            wanted = ", ".join(f"{prefix}{{images-idx3,labels-idx1}}-ubyte[.gz]" for prefix in self.prefixes.values())
            raise UserError(f"dataset {self.name!r} needs --source DIR, the directory of {wanted}")
        return idx.find(self.embedded or pathlib.Path(source), self.prefixes, required=self.required)


_FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")

READERS: Mapping[str, IdxReader] = {
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
    )
}


def find_reader(dataset: str) -> IdxReader:
    """The reader of that name.

    Raises:
      UserError: If there is none; it names the nearest.
    """
    if dataset not in READERS:
        raise unknown("dataset", dataset, READERS)
    return READERS[dataset]


def source_digest(dataset: str, source: str | None) -> str:
    """SHA-256 (hexadecimal) over the names and contents of a source's files: it changes when the source does.

    Raises:
      UserError: If the dataset is unknown or its files are missing.
    """
    digest = hashlib.sha256()
    for path in find_reader(dataset).files(source):
        with open(path, "rb") as file:
            digest.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()
