"""PNG and JPEG files in a folder for each class, and what all sources of image files share.

    source = FolderSource()
    # The files are flowers/rose/1.jpg, or flowers/{train,test}/rose/1.jpg.
    examples = source.open("flowers", opening)
    block = next(examples.blocks(examples.pieces[0]))
    block.columns["image"]    # uint8 [N, height, width, channels], or N files

The classes are the names of the folders, sorted. The images are in the order of a hash of class and
file name, so that every piece has all classes. The split for which an image is drawn depends on the
bytes of its file only, not on how it is stored.

Pixels are those of the file. An EXIF orientation is not applied, since TensorFlow's decoders do not
apply it either.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import hashlib
import io
import itertools
import math
import os
import re
import struct
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Self

import numpy as np

from common.errors import UserError, readable
from common.manifest import Feature
from common.storage.files import list_folder, open_files
from common.storage.storage import File
from components.convert.hashes import content_hashes, string_digests
from components.convert.source import (
    LABEL,
    Block,
    Examples,
    Opening,
    Paths,
    Piece,
    Source,
    existing_files,
    image_feature,
    list_inside,
    print_left_out,
)
from components.convert.splits import NAMES, SPLITS

_MOST_RAW_BYTES = 1 << 16  # Without `--encoding`, larger images are stored as files.
_DEFAULT_SIZE = (224, 224)  # Size that a model gets if the images differ in size.
_BLOCK_BYTES = 1 << 22  # Approximate size of the images of a block, as files and pixels.
# Bytes of a file that are fetched if only its head is needed; more are if the head is longer.
_HEAD_BYTES = 1 << 12
IMAGE_ENDINGS = ("png", "jpg", "jpeg")
_LAYOUT = "DIR/class/name.png, or DIR/{train,validation,test}/class/name.png"
_IMAGE = rf"[^/]+/[^/]+\.({'|'.join(IMAGE_ENDINGS)})"  # Path in the folder of all classes.
# If no folder of a split has folders of classes, all folders are those of classes.
_PATTERNS = {
    "PNG and JPEG files in the splits' folders of classes": re.compile(
        f"({'|'.join(NAMES)})/{_IMAGE}", re.IGNORECASE
    ),
    "PNG and JPEG files in folders of classes": re.compile(_IMAGE, re.IGNORECASE),
}
_GRAY = frozenset({"1", "L", "LA", "I", "I;16", "I;16B"})
_ORIENTATION = 0x0112


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picture:
    """An image file, wherever it lies, and its class.

    Attributes:
      origin: Place of the image, for messages.
      content: The file. Perhaps only its beginning has been fetched; the rest is when it is read.
      label: Number of the class.
    """

    origin: str
    content: IO[bytes]
    label: int


@dataclasses.dataclass(kw_only=True)
class _Heads:
    """Facts from the heads of some images.

    Attributes:
      sizes: Origin of the first image of each (height, width).
      is_gray: Whether all images are grey.
      rotated: Origins of the images with an EXIF orientation other than the normal one.
      longest: Number of bytes of the longest file.
    """

    sizes: dict[tuple[int, int], str] = dataclasses.field(default_factory=dict)
    is_gray: bool = True
    rotated: list[str] = dataclasses.field(default_factory=list)
    longest: int = 0


def _read_heads(pictures: Iterable[Picture]) -> _Heads:
    """Returns the sizes of images, whether all are grey, which are rotated, and the longest file.

    No pixel is decoded.

    Raises:
      UserError: If one is no PNG or JPEG image, broken, or has more pixels than Pillow allows.
    """
    heads = _Heads()
    for picture in pictures:
        with readable(picture.origin), opened(picture.content, picture.origin) as image:
            heads.sizes.setdefault((image.height, image.width), picture.origin)
            heads.is_gray &= image.mode in _GRAY
            # If a PNG has no such key, `getexif` decodes all of it to look for an orientation.
            if "exif" in image.info and image.getexif().get(_ORIENTATION, 1) != 1:
                heads.rotated.append(picture.origin)
            heads.longest = max(heads.longest, picture.content.seek(0, os.SEEK_END))
    return heads


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageExamples(Examples):
    """Images with classes. `choose_storage` decides how they are stored."""

    inputs: tuple[Feature, ...] = ()

    @abc.abstractmethod
    def pictures(self, piece: Piece, *, heads_only: bool = False) -> Iterator[Picture]:
        """Yields the images of a piece; the content of one is closed when the next is asked for.

        With `heads_only`, only the heads of the files are fetched at once.

        Raises:
          UserError: If a file cannot be opened, or an image has no class.
          ConnectionError: If a store does not answer.
        """

    def choose_storage(
        self, opening: Opening, size: tuple[int, int] | None, encoding: str | None
    ) -> Self:
        """Decides how the images are stored, after a look at the heads of all, and prints that.

        Args:
          opening: Settings and resources of the conversion.
          size: Height and width that a model gets. None for those of the images or, if these
            differ, 224 x 224.
          encoding: `raw` to store pixels, which need one size; `source` to store whole files. None
            for pixels if a size is given, or if all images have one size and at most 64 KiB of
            pixels; else for files.

        Returns:
          A copy of the examples in which `inputs` is the feature `image`, with the shape that a
          model gets and the chosen encoding, and `most` has the bytes of the longest image file.

        Raises:
          UserError: If an image is broken, or pixels are to be stored, the images differ in size,
            and no size is given.
          ConnectionError: If a store does not answer.
        """
        heads = opening.map(
            lambda piece: _read_heads(self.pictures(piece, heads_only=True)), self.pieces
        )
        sizes = {size: origin for part in reversed(heads) for size, origin in part.sizes.items()}
        by_area = sorted(sizes, key=lambda shape: (math.prod(shape), shape))
        smallest, largest = by_area[0], by_area[-1]
        own = smallest if len(sizes) == 1 else None
        channels = 1 if all(part.is_gray for part in heads) else 3
        if encoding is None:
            encoding = (
                "raw"
                if size or (own and math.prod(own) * channels <= _MOST_RAW_BYTES)
                else "source"
            )
        if encoding == "raw" and not (size or own):
            raise UserError(
                f"--encoding raw: images differ in size ({sizes[smallest]} is "
                f"{_product(smallest)}, {sizes[largest]} "
                f"is {_product(largest)}); give --image-size HEIGHTxWIDTH too"
            )
        shape = (*(size or own or _DEFAULT_SIZE), channels)
        range_ = " to ".join(dict.fromkeys(map(_product, (smallest, largest))))
        how = (
            "pixels,"
            if encoding == "raw"
            else "the files that they are (see --image-size); a model gets"
        )
        print(f"images of {range_} pixels are stored as {how} {_product(shape)}", flush=True)
        if rotated := [*itertools.chain(*(part.rotated for part in heads))]:
            print(
                f"the EXIF orientation of {len(rotated):,} images is not applied, first of "
                f"{rotated[0]}",
                flush=True,
            )
        feature = image_feature(shape, encoding=None if encoding == "raw" else "image")
        return dataclasses.replace(
            self, inputs=(feature,), most={"image": max(part.longest for part in heads)}
        )

    def blocks(self, piece: Piece) -> Iterator[Block]:
        """Yields the images of a piece, in blocks of about 4 MiB.

        Raises:
          UserError: If an image is broken or cannot be read.
          ConnectionError: If a store does not answer.
        """
        (feature,) = self.inputs
        records, num_bytes = [], 0
        for picture in self.pictures(piece):
            with readable(picture.origin):
                data = picture.content.read()
            image = (
                np.array(require_whole(data, picture.origin))
                if feature.encoding
                else decode(data, picture.origin, channels=feature.shape[2], size=feature.shape[:2])
            )
            records.append((data, image, picture.label))
            num_bytes += len(data) + image.nbytes
            if num_bytes >= _BLOCK_BYTES:
                yield self._block(records)
                records, num_bytes = [], 0
        if records:
            yield self._block(records)

    def _block(self, records: Sequence[tuple[bytes, np.ndarray, int]]) -> Block:
        """Returns a block of images.

        Args:
          records: Of each image its file; its pixels, uint8 [height, width, channels], or its
            height and width, int [2], if files are stored; and its class.
        """
        files, images, labels = zip(*records, strict=True)
        image, measures = np.stack(images), {}
        keys = content_hashes(len(files), {"image": string_digests(files)})
        if self.inputs[0].encoding:
            import pyarrow as pa  # Pixels do without.

            num_bytes = np.array([*map(len, files)])
            measures = {
                "image.height": image[:, 0],
                "image.width": image[:, 1],
                "image.bytes": num_bytes,
            }
            image = pa.array(files, pa.large_binary())
        columns = {"image": image, LABEL: np.array(labels, np.int64)}
        return Block(columns=columns, measures=measures, keys=keys)


def require_whole(data: bytes, origin: str) -> tuple[int, int]:
    """Reads an image file to its end, and returns the height and width of the image.

    Raises:
      UserError: If the image is broken.
    """
    with opened(io.BytesIO(data), origin) as image:
        size = image.height, image.width
        # All bytes of a JPEG are unpacked even so, but only few pixels are computed.
        image.draft(None, (1, 1))
        image.load()
    return size


def decode(data: bytes, origin: str, *, channels: int, size: tuple[int, ...]) -> np.ndarray:
    """Returns the pixels of an image file, uint8 [height, width, channels]; 1 or 3 channels.

    Colour is made from grey by repetition, and grey from colour by luma. Transparency is dropped,
    and of 16 bits the upper 8 are kept. An image of another size (height, width) is cut to its
    largest central part with the wanted proportions, and this is resized with Pillow's bilinear
    filter. That filter antialiases when it shrinks an image, and computes with integers, so the
    result is the same on every machine. The trainer's reader does the same to whole files.

    Raises:
      UserError: If the image is broken; the message names the `origin`.
    """
    with opened(io.BytesIO(data), origin) as image:
        from PIL import Image

        image.load()
        if image.mode.startswith("I"):
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        image = image.convert("L" if channels == 1 else "RGB")
        if (image.height, image.width) != size:
            scale = min(image.height / size[0], image.width / size[1])
            height, width = (max(1, round(scale * length)) for length in size)
            top, left = (image.height - height) // 2, (image.width - width) // 2
            box = left, top, left + width, top + height
            image = image.crop(box).resize(size[::-1], Image.Resampling.BILINEAR)
        return np.asarray(image).reshape(*size, channels)


@contextlib.contextmanager
def opened(stream: IO[bytes], origin: str) -> Iterator[Any]:
    """Yields a PNG or JPEG image opened with Pillow, whose pixels are not decoded yet.

    Raises:
      UserError: If the stream has no such image or one with too many pixels, or the image is
        broken, even if that shows only in the block. The message names the `origin`.
    """
    from PIL import Image, UnidentifiedImageError  # Slow to import.

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(stream, formats=("PNG", "JPEG"))
        with image:
            if math.prod(image.size) > (Image.MAX_IMAGE_PIXELS or math.inf):
                raise UserError(
                    f"{origin}: {image.height} x {image.width} pixels are too many; make it smaller"
                )
            yield image
    except (UserError, ConnectionError):
        raise
    except UnidentifiedImageError:
        raise UserError(f"{origin}: is no PNG or JPEG image") from None
    except (
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        struct.error,
        zlib.error,
        Image.DecompressionBombError,
    ) as error:
        raise UserError(f"{origin}: broken image ({error})") from None


def _product(lengths: Sequence[int]) -> str:
    return " x ".join(map(str, lengths))


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderSource(Source):
    """A folder of images: a folder for each class, perhaps inside of one for each split.

    The folders of splits are `train`, `validation` and `test`.

    Attributes:
      image_size: Height and width that a model gets; None to choose them by the images.
      encoding: `raw` to store pixels, `source` to store whole files; None to choose by size.
    """

    name: str = "images"
    takes = frozenset({"image_size", "encoding"})
    image_size: tuple[int, int] | None = None
    encoding: str | None = None

    def files(self, paths: Paths) -> list[File]:
        """Returns the images of all splits, one split after the other.

        Those of a split are sorted by a hash of class and file name, which mixes the classes.

        Raises:
          UserError: If there is no such folder, or it has no images for training.
          ConnectionError: If a store does not answer.
        """
        return [*itertools.chain(*self._find(paths).values())]

    def open(self, paths: Paths, opening: Opening) -> FolderExamples:
        """Reads the heads of all images, and decides how they are stored.

        Raises:
          UserError: For each reason of `files` and `choose_storage`; if there are fewer than two
            classes, one has no images in `train`, or the name of one is not UTF-8.
          ConnectionError: If a store does not answer.
        """
        images = self._find(paths)
        class_names = sorted({*map(_class, images["train"])})
        for name in sorted({*map(_class, itertools.chain(*images.values()))}):
            if any("\ud800" <= character <= "\udfff" for character in name):
                raise UserError(f"{paths}: class {name!r} is not UTF-8; rename that folder")
            if name not in class_names:
                raise UserError(f"{paths}: class {name!r} has no images for training")
        if len(class_names) < 2:
            raise UserError(f"{paths}: has one class, {name!r}; needed are {_LAYOUT}")
        num_bytes = {
            split: 1 + sum(file.num_bytes for file in files) for split, files in images.items()
        }
        examples = FolderExamples(
            name=self.name,
            origin="PNG and JPEG files in a folder for each class",
            pieces=opening.even_pieces(
                {split: len(files) for split, files in images.items()}, num_bytes
            ),
            class_names=tuple(class_names),
            images=images,
        )
        return examples.choose_storage(opening, self.image_size, self.encoding)

    def _find(self, paths: Paths) -> dict[str, list[File]]:
        """Returns the images of each split that has any, sorted as in `files`.

        Prints which files and folders are left out.

        A `UserError` is raised if there is no such folder, or it has no images for training.
        """
        root, _ = self.locate_one(paths, f"DIR, with {_LAYOUT}", needs_folder=True)
        images: dict[str, list[File]] = {split: [] for split in SPLITS}
        for file in existing_files(list_inside(root, _PATTERNS)):
            *folders, _, _ = file.path[len(root) :].strip("/").split("/")
            images[NAMES[folders[0].lower()] if folders else "train"].append(file)
        if not images["train"]:
            raise UserError(f"{root}: has no images for training; needed are {_LAYOUT}")
        classes = {os.path.dirname(file.path) for file in itertools.chain(*images.values())}
        for folder in sorted({*map(os.path.dirname, classes)}):
            others = [
                os.path.basename(path) for path in list_folder(folder)[0] if path not in classes
            ]
            empty = [name for name in others if not name.startswith((".", "_"))]
            print_left_out(folder, empty, "folders with PNG or JPEG files")
        return {split: sorted(files, key=_order) for split, files in images.items() if files}


def _order(image: File) -> bytes:
    # The hash of class and file name: it mixes the classes, and does not depend on the root folder.
    return hashlib.sha256(os.fsencode("/".join(image.path.split("/")[-2:]))).digest()


def _class(image: File) -> str:
    return image.path.split("/")[-2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderExamples(ImageExamples):
    """Images in folders: the files of each split, in their order."""

    images: Mapping[str, Sequence[File]]

    def pictures(self, piece: Piece, *, heads_only: bool = False) -> Iterator[Picture]:
        """Yields the images of a piece; the content of one is closed when the next is asked for.

        Args:
          piece: The piece.
          heads_only: Whether to fetch only the heads of files in a bucket at once.

        Raises:
          UserError: If a file cannot be opened.
          ConnectionError: If a store does not answer.
        """
        files = self.images[piece.split][slice(*piece.part)]
        with readable(self.name):
            for file, content in zip(
                files, open_files(files, _HEAD_BYTES if heads_only else None), strict=True
            ):
                with content:
                    label = self.class_names.index(_class(file))
                    yield Picture(origin=file.path, content=content, label=label)
