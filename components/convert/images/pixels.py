"""Image files, and images with their labels, as pixels or as whole files."""

from collections.abc import Mapping
from typing import Any

from components.convert.source import Source
from trainer.base.manifest import Feature


def image_feature(
    shape: tuple[int, int, int], *, value_range: tuple[float, float] = (0.0, 255.0), encoding: str | None = None
) -> Feature:
    """The feature `image`: pixels of that height, width and channels, or whole files that a model gets so."""
    return Feature(name="image", dtype="uint8", shape=shape, encoding=encoding, value_range=value_range)


def image_source(
    splits: Mapping[str, Mapping[str, Any]],
    *,
    value_range: tuple[float, float] = (0.0, 255.0),
    shape: tuple[int, int, int] | None = None,
    **said: Any,
) -> Source:
    """A source of images.

    Args:
      splits: Each has the columns `image`, uint8 [N, height, width, channels] of one shape or whole files, and `label`,
        [N] or [N, k] as the task has it.
      value_range: Smallest and largest value that a pixel can have.
      shape: Height, width and channels that a model gets of whole files; None of pixels, which have theirs.
      **said: What else a `Source` says.
    """
    image = Feature(
        name="image",
        dtype="uint8",
        shape=shape or splits["train"]["image"].shape[1:],
        encoding="image" if shape else None,
        value_range=value_range,
    )
    return Source(inputs=(image,), splits=splits, **said)
