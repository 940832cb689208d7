"""Image files, and images with their labels, as pixels or as whole files."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import IO, Any

import numpy as np

from components.convert.writing.label_feature import LABEL, label_feature
from components.convert.writing.tfrecord import Field, Layout
from components.convert.writing.wire_format import varint_bytes
from trainer.base.manifest import CLASSIFICATION, Feature


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pictures:
    """Image files, wherever they lie.

    Attributes:
      lengths: Bytes of each, int64 [N].
      place: Says where one is.
      open: Gives the content of one.
    """

    lengths: np.ndarray
    place: Callable[[int], str]
    open: Callable[[int], IO[bytes]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageSource:
    """A `Source` of images.

    Attributes:
      splits: Each has the columns `image`, uint8 [N, height, width, channels] of one shape or whole files, and `label`,
        [N] or [N, k] as the task has it.
      value_range: Smallest and largest value that a pixel can have.
      shape: Height, width and channels that a model gets of whole files; None of pixels, which have theirs.
    """

    name: str
    origin: str
    splits: Mapping[str, Mapping[str, Any]]
    class_names: tuple[str, ...] = ()
    task: str = CLASSIFICATION
    targets: tuple[str, ...] = ()
    value_range: tuple[float, float] = (0.0, 255.0)
    shape: tuple[int, int, int] | None = None
    arguments: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def layout(self) -> Layout:
        """How a record is laid out."""
        images = [columns["image"] for columns in self.splits.values()]
        if self.shape is None:
            image = Field(name="image", kind="bytes", num_bytes=math.prod(images[0].shape[1:]))
        else:
            longest = max(int(files.lengths.max()) for files in images)
            image = Field(name="image", kind="string", num_bytes=longest)
        label, count = self._label, math.prod(self._label.shape)
        if label.dtype == "float32":
            return Layout([image, Field(name=LABEL, kind="float", num_bytes=4 * count)])
        return Layout(
            [image, Field(name=LABEL, kind="int64", num_bytes=count * varint_bytes(int(label.value_range[1])))]
        )

    def features(self) -> tuple[Feature, ...]:
        """The manifest's, without statistics."""
        image = Feature(
            name="image",
            dtype="uint8",
            shape=self.shape or self.splits["train"]["image"].shape[1:],
            encoding="image" if self.shape else None,
            value_range=self.value_range,
        )
        return image, self._label

    @property
    def _label(self) -> Feature:
        return label_feature(self.task, len(self.class_names or self.targets))

    def encodings(self, training: object) -> dict[str, tuple]:
        """None: a model takes an image as it is."""
        return {}
