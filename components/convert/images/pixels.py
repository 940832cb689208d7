"""Image files, and images with their labels, as pixels or as whole files."""

from common.manifest import Feature


def image_feature(
    shape: tuple[int, int, int], *, value_range: tuple[float, float] = (0.0, 255.0), encoding: str | None = None
) -> Feature:
    """The feature `image`: pixels of that height, width and channels, or whole files that a model gets so."""
    return Feature(name="image", dtype="uint8", shape=shape, encoding=encoding, value_range=value_range)
