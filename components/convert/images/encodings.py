"""Images that come as PNG or JPEG files: stored as pixels if they are small and of one size, else as they are.

source = arrange({"train": (files, labels)}, store, size=None, encoding=None, **said)
source.splits["train"]["image"][np.array([0, 7])]     # uint8 [2, height, width, channels], or Strings
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from components.convert.images import headers
from components.convert.images.pixels import Pictures, image_source
from components.convert.source import Source
from components.convert.writing import progress
from components.convert.writing.byte_strings import Strings
from components.convert.writing.column_store import Store
from trainer.base.errors import UserError, readable

RAW, SOURCE = "raw", "source"
MOST_RAW_BYTES = 1 << 16  # of an image that is stored as pixels without being asked for
DEFAULT_SIZE = (224, 224)  # that a model gets of images that differ in size


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pixels:
    """A column of images of one shape, decoded when first asked for: uint8 [N, height, width, channels].

    Attributes:
      shape: With the number of images.
      held: uint8 [N, bytes + 1], of each image that this or another process has decoded the pixels and a 1; None if
        memory is too small.
    """

    pictures: Pictures
    shape: tuple[int, int, int, int]
    held: np.ndarray | None
    dtype = np.dtype(np.uint8)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        if self.held is None:
            return self._decoded(rows)
        absent = rows[self.held[rows, -1] == 0]
        self.held[absent, :-1] = self._decoded(absent).reshape(len(absent), self.held.shape[1] - 1)
        self.held[absent, -1] = 1
        return self.held[rows, :-1].reshape(-1, *self.shape[1:])

    def _decoded(self, rows: np.ndarray) -> np.ndarray:
        images = np.empty((len(rows), *self.shape[1:]), np.uint8)
        for image, i in zip(images, rows.tolist(), strict=True):
            data, place = _read(self.pictures, i)
            image[:] = headers.decode(data, place, channels=self.shape[3], size=self.shape[1:3])
        return images


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageFiles:
    """A column of whole image files, read when asked for, and refused if they cannot be decoded.

    Attributes:
      sizes: Height and width of each, int32 [N, 2].
    """

    pictures: Pictures
    sizes: np.ndarray
    dtype = np.dtype(np.object_)

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each, int64 [N]."""
        return self.pictures.lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, rows: np.ndarray) -> Strings:
        files = [_read(self.pictures, i) for i in rows.tolist()]
        for data, place in files:
            headers.require_whole(data, place)
        return Strings.of([data for data, _ in files])


def _read(pictures: Pictures, i: int) -> tuple[bytes, str]:
    """An image file's content, and where it is."""
    place = pictures.place(i)
    with readable(place), pictures.open(i) as stream:
        data = stream.read()
    if len(data) != pictures.lengths[i]:
        raise UserError(f"{place}: changed while it was read")
    return data, place


def arrange(
    pictures: Mapping[str, tuple[Pictures, np.ndarray]],
    store: Store,
    *,
    size: tuple[int, int] | None,
    encoding: str | None,
    **said: Any,
) -> Source:
    """Looks at all images, and decides and tells how they are stored.

    Args:
      pictures: By split, the images and their labels.
      store: Where pixels are kept.
      size: Height and width that a model gets; None for the images' own, or `DEFAULT_SIZE` if these differ.
      encoding: `raw` for pixels, `source` for whole files; None for pixels if a size is given, or if all have one size
        of at most `MOST_RAW_BYTES`.
      **said: What else a `Source` says.

    Raises:
      UserError: If an image is broken; if pixels are asked for of images that differ in size.
    """
    sizes, all_sizes, all_gray, rotated = {}, {}, True, []
    for split, (images, _) in pictures.items():
        all_sizes[split] = np.empty((len(images.lengths), 2), np.int32)
        with progress.track(f"looking at {split}", len(images.lengths), "images") as advance:
            for i in range(len(images.lengths)):
                place = images.place(i)
                with readable(place), images.open(i) as stream:
                    found, gray, turned = headers.head(stream, place)
                all_sizes[split][i] = found
                sizes.setdefault(found, place)
                all_gray &= gray
                if turned:
                    rotated.append(place)
                advance(1)
    channels = 1 if all_gray else 3
    own = next(iter(sizes)) if len(sizes) == 1 else None
    if encoding is None:
        encoding = RAW if size or (own and math.prod(own) * channels <= MOST_RAW_BYTES) else SOURCE
    if encoding == RAW and not (size or own):
        (one, a), (other, b) = list(sizes.items())[:2]
        raise UserError(
            f"--encoding raw: images differ in size ({a} is {_shown(one)}, {b} is {_shown(other)}); "
            "give --image-size HEIGHTxWIDTH too"
        )
    shape = (*(size or own or DEFAULT_SIZE), channels)
    _tell(sizes, encoding, shape)
    if rotated:
        print(f"the EXIF orientation of {len(rotated):,} images is not applied, first of {rotated[0]}")

    def column(split: str) -> Pixels | ImageFiles:
        images, _ = pictures[split]
        if encoding == SOURCE:
            return ImageFiles(pictures=images, sizes=all_sizes[split])
        count = len(images.lengths)
        held = store.shared((count, math.prod(shape) + 1))
        return Pixels(pictures=images, shape=(count, *shape), held=held)

    return image_source(
        {split: {"image": column(split), "label": labels} for split, (_, labels) in pictures.items()},
        shape=shape if encoding == SOURCE else None,
        **said,
    )


def _tell(sizes: Mapping[tuple[int, int], str], encoding: str, shape: tuple[int, int, int]) -> None:
    smallest, *_, largest = sorted([*sizes, *sizes], key=lambda size: (math.prod(size), size))
    had = _shown(smallest) if len(sizes) == 1 else f"{len(sizes):,} sizes from {_shown(smallest)} to {_shown(largest)}"
    given = " x ".join(map(str, shape))
    if encoding == RAW:
        print(f"images of {had} pixels are stored as pixels, {given}")
    else:
        print(
            f"images of {had} pixels are stored as the files that they are; a model gets {given} "
            "(--encoding source --image-size HEIGHTxWIDTH for another size)"
        )


def _shown(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"
