"""Images of one shape with their labels, which are there as pixels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from components.convert.writing.tfrecord import Field, Layout
from components.convert.writing.wire_format import varint_bytes
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
