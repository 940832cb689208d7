"""Images of one shape with their labels, and the sets of IDX files that hold such.

source = IdxReader(name="mnist", origin="MNIST, original IDX files").read("downloads/mnist")
source.splits["train"]["image"].shape     # (60000, 28, 28, 1)
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from components.convert.sources import idx
from components.convert.writing.column_store import MEMORY, Store
from components.convert.writing.tfrecord import Field, Layout
from components.convert.writing.wire_format import varint_bytes
from trainer.base.errors import UserError
from trainer.base.manifest import Feature


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageSource:
    """A dataset of images as its authors split it.

    Attributes:
      name: As given with `--dataset`.
      origin: Where it comes from, in words.
      splits: Its native splits: `train`, and `test` or `validation` if it has them. Each has the columns `image`,
        uint8 [N, height, width, channels] of one shape, and `label`, integers [N], both in the source's order.
      class_names: In the order of the labels, which all lie in `range(len(class_names))`.
      value_range: Smallest and largest value that a pixel can have.
      arguments: What decides the content beside the options.
    """

    name: str
    origin: str
    splits: Mapping[str, Mapping[str, np.ndarray]]
    class_names: tuple[str, ...]
    value_range: tuple[float, float]
    arguments: Mapping[str, object] = dataclasses.field(default_factory=dict)

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.splits["train"]["image"].shape[1:]

    def layout(self) -> Layout:
        """How a record is laid out."""
        label_bytes = varint_bytes(len(self.class_names) - 1)
        return Layout(
            [
                Field(name="image", kind="bytes", num_bytes=math.prod(self._shape)),
                Field(name="label", kind="int64", num_bytes=label_bytes),
            ]
        )

    def features(self) -> tuple[Feature, ...]:
        """The manifest's, without statistics."""
        high = len(self.class_names) - 1.0
        return (
            Feature(name="image", dtype="uint8", shape=self._shape, value_range=self.value_range),
            Feature(name="label", dtype="int64", shape=(), value_range=(0.0, high)),
        )

    def encodings(self, training: np.ndarray) -> dict[str, tuple]:
        """None: a model takes an image as it is."""
        return {}


def one_path(dataset: str, source: str | Sequence[str]) -> pathlib.Path:
    """The path that `--source` gives to a dataset that takes one.

    Raises:
      UserError: If it gives more.
    """
    if not isinstance(source, str):
        raise UserError(f"--source {' '.join(source)}: dataset {dataset!r} takes one path, not {len(source)}")
    return pathlib.Path(source)


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

    def files(self, source: str | Sequence[str] | None) -> list[pathlib.Path]:
        """The files that `read` reads."""
        return [path for pair in self._pairs(source).values() for path in pair]

    def read(self, source: str | Sequence[str] | None, store: Store = MEMORY) -> ImageSource:
        """Reads the set from the directory `source`, or the embedded one.

        Raises:
          UserError: If `source` or a file is missing, or a file is not what it should be.
        """
        pairs = self._pairs(source)
        splits = {
            split: dict(zip(("image", "label"), idx.read_pair(*pair, store), strict=True))
            for split, pair in pairs.items()
        }
        largest = max(int(columns["label"].max()) for columns in splits.values())
        class_names = self.class_names or tuple(str(label) for label in range(largest + 1))
        height, width, _ = splits["train"]["image"].shape[1:]
        for split, (images, labels) in pairs.items():
            if (shape := splits[split]["image"].shape[1:3]) != (height, width):
                raise UserError(f"{images}: images of {shape[0]} x {shape[1]} pixels; {height} x {width} in train")
            if (wrong := splits[split]["label"] >= len(class_names)).any():
                record = int(wrong.argmax())
                raise UserError(
                    f"{labels}: record {record} has label {splits[split]['label'][record]}; {self.name} has classes 0 to "
                    f"{len(class_names) - 1}"
                )
        return ImageSource(
            name=self.name,
            origin=self.origin,
            splits=splits,
            class_names=class_names,
            value_range=self.value_range,
        )

    def _pairs(self, source: str | Sequence[str] | None) -> dict[str, tuple[pathlib.Path, pathlib.Path]]:
        if self.embedded and source is not None:
            raise UserError(f"dataset {self.name!r} is built in; leave out --source {source}, or use --dataset idx")
        if not self.embedded and source is None:
            wanted = ", ".join(f"{prefix}{{images-idx3,labels-idx1}}-ubyte[.gz]" for prefix in self.prefixes.values())
            raise UserError(f"dataset {self.name!r} needs --source DIR, the directory of {wanted}")
        return idx.find(self.embedded or one_path(self.name, source), self.prefixes, required=self.required)
