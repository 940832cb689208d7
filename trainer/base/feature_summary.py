"""What the examples of one split say of a feature: a part of the manifest that people read, and no model.

manifest.splits["test"].summaries["fare"].mean
"""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """Statistics of one feature in one split: of numbers, of categories or of images; the others' are None.

    The number of an image that is stored as pixels is its brightness, the mean of all its pixels. An encoded image has
    three numbers instead, each with a summary of its own: `image.height`, `image.width` (pixels) and `image.bytes`.

    Attributes:
      missing: Examples in which the source has no value and a default stands in for it.
      mean: Of the numbers that the source has, as are `std` to `histogram`; None where it has none.
      std: Standard deviation, with the number of values as divisor.
      min: Smallest.
      max: Largest.
      histogram: How many are below the first edge, from each edge to below the next, and from the last edge on.
      edges: Ascending, about equally far apart over the central 98 % of the training split. It alone has them: they hold
        for all splits.
      channel_mean: Of the pixels, by channel of an image.
      channel_std: Likewise.
      unique: Number of different categories as stored, the default being one; None, as are the next two, if there are too
        many to count.
      frequent: The most frequent of them, the most frequent first, equals by value; long texts are cut.
      counts: Examples of each of these.
      in_vocabulary: Examples whose category is in the vocabulary (the longest, if there are several) of the manifest's
        encodings, and so of the training split; None if no encoding has one.
    """

    missing: int = 0
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    max: float | None = None
    histogram: tuple[int, ...] | None = None
    edges: tuple[float, ...] | None = None
    channel_mean: tuple[float, ...] | None = None
    channel_std: tuple[float, ...] | None = None
    unique: int | None = None
    frequent: tuple[str | int, ...] | None = None
    counts: tuple[int, ...] | None = None
    in_vocabulary: int | None = None
