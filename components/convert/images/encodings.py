"""Images that come as PNG or JPEG files: stored as pixels if they are small and of one size, else as they are.

source = source.settled([source.look(piece, training) for piece in cut.pieces])     # reads the heads of the files
next(source.blocks(cut.pieces[0])).columns["image"]     # uint8 [N, height, width, channels], or Strings
"""

import abc
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import IO, Any, Self

import numpy as np

from common.errors import UserError, readable
from common.manifest import Feature
from components.convert import pieces
from components.convert.images import headers
from components.convert.images.pixels import image_feature
from components.convert.writing.byte_strings import Strings
from components.convert.writing.label_feature import LABEL, label_feature

RAW, SOURCE = "raw", "source"
MOST_RAW_BYTES = 1 << 16  # of an image that is stored as pixels without being asked for
DEFAULT_SIZE = (224, 224)  # that a model gets of images that differ in size
_BLOCK_BYTES = 1 << 22  # of images that are held together, about


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picture:
    """An image file, wherever it lies.

    Attributes:
      position: In the split.
      place: Says where it is.
      num_bytes: That it has.
      content: Is read as far as it is needed.
      label: The number of its class, or its targets.
    """

    position: int
    place: str
    num_bytes: int
    content: IO[bytes]
    label: Sequence[int | float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageSource(pieces.Source):
    """Images with their labels; all have to be looked at before it is known how they are stored.

    Attributes:
      size: Height and width that a model gets; None for the images' own, or `DEFAULT_SIZE` if these differ.
      encoding: `raw` for pixels, `source` for whole files; None for pixels if a size is given, or if all have one size
        of at most `MOST_RAW_BYTES`.
    """

    inputs: tuple[Feature, ...] = ()
    looks: bool = True
    size: tuple[int, int] | None = None
    encoding: str | None = None

    @abc.abstractmethod
    def pictures(self, piece: pieces.Piece, *, heads: bool) -> Iterator[Picture]:
        """The images of a piece, in order, or what is needed of each to read its head.

        The content of one is closed when the next one is asked for.
        """

    def look(self, piece: pieces.Piece, training: pieces.Training) -> dict[str, Any]:
        """What the heads of the images say: each size with the place of its first, and which are to be rotated."""
        sizes, gray, rotated, longest = {}, True, [], 0
        for picture in self.pictures(piece, heads=True):
            with readable(picture.place):
                size, is_gray, turned = headers.head(picture.content, picture.place)
            sizes.setdefault(size, picture.place)
            gray &= is_gray
            rotated += [picture.place] * turned
            longest = max(longest, picture.num_bytes)
        return {"sizes": [*sizes.items()], "gray": gray, "rotated": [len(rotated), *rotated[:1]], "longest": longest}

    def settled(self, looks: Sequence[Any]) -> Self:
        """Decides and tells how images are stored; pixels need one size, their own or the one that is asked for."""
        sizes = {}
        for (height, width), place in (entry for look in looks for entry in look["sizes"]):
            sizes.setdefault((height, width), place)
        channels = 1 if all(look["gray"] for look in looks) else 3
        own, size, encoding = next(iter(sizes)) if len(sizes) == 1 else None, self.size, self.encoding
        if encoding is None:
            encoding = RAW if size or (own and math.prod(own) * channels <= MOST_RAW_BYTES) else SOURCE
        if encoding == RAW and not (size or own):
            (one, a), (other, b) = list(sizes.items())[:2]
            raise UserError(
                f"--encoding raw: images differ in size ({a} is {_shown(one)}, {b} is {_shown(other)}); "
                "give --image-size HEIGHTxWIDTH too"
            )
        shape = (*(size or own or DEFAULT_SIZE), channels)
        smallest, *_, largest = sorted([*sizes, *sizes], key=lambda size: (math.prod(size), size))
        had = _shown(smallest) if own else f"{len(sizes):,} sizes from {_shown(smallest)} to {_shown(largest)}"
        stored = f"images of {had} pixels are stored as"
        if encoding == RAW:
            print(f"{stored} pixels, {_shown(shape)}")
        else:
            print(
                f"{stored} the files that they are; a model gets {_shown(shape)} "
                "(--encoding source --image-size HEIGHTxWIDTH for another size)"
            )
        if rotated := [look["rotated"] for look in looks if look["rotated"][0]]:
            count = sum(count for count, _ in rotated)
            print(f"the EXIF orientation of {count:,} images is not applied, first of {rotated[0][1]}")
        feature = image_feature(shape, encoding="image" if encoding == SOURCE else None)
        most = {"image": max(look["longest"] for look in looks)}
        return dataclasses.replace(self, inputs=(feature,), most=most, looks=False)

    def blocks(self, piece: pieces.Piece) -> Iterator[pieces.Block]:
        """Reads the images, each of which has to be whole."""
        held, num_bytes = [], 0
        for picture in self.pictures(piece, heads=False):
            with readable(picture.place):
                data = picture.content.read()
            image = self.image(data, picture.place)
            held.append((picture.position, picture.label, *image))
            num_bytes += len(data) if self.inputs[0].encoding else image[0].nbytes
            if num_bytes >= _BLOCK_BYTES:
                yield self._block(*zip(*held, strict=True))
                held, num_bytes = [], 0
        if held:
            yield self._block(*zip(*held, strict=True))

    def image(self, data: bytes, place: str) -> tuple[Any, ...]:
        """What is stored of an image: its pixels, or the file with its height and width."""
        (feature,) = self.inputs
        if feature.encoding:
            return data, *headers.require_whole(data, place)
        return (headers.decode(data, place, channels=feature.shape[2], size=feature.shape[:2]),)

    def _block(
        self, positions: Sequence[int], labels: Sequence[Any], images: Sequence[Any], *sizes: Sequence[int]
    ) -> pieces.Block:
        (image,), label = self.inputs, label_feature(self.task, len(self.class_names or self.targets))
        columns = {
            "image": Strings.of(images) if image.encoding else np.stack(images),
            LABEL: np.array(labels, label.dtype).reshape(-1, *label.shape),
        }
        told = {name: np.array(values) for name, values in zip(("image.height", "image.width"), sizes, strict=False)}
        if image.encoding:
            told["image.bytes"] = columns["image"].lengths
        return pieces.Block(positions=np.array(positions), columns=columns, told=told)


def _shown(lengths: Sequence[int]) -> str:
    return " x ".join(map(str, lengths))
