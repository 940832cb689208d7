"""PNG and JPEG files: a folder with a folder for each class, and what every source of image files shares.

    source = FolderSource()
    examples = source.open("flowers", opening)     # flowers/rose/1.jpg, or flowers/{train,test}/rose/1.jpg
    next(examples.blocks(examples.pieces[0])).columns["image"]     # uint8 [N, height, width, channels], or files

Classes are the folders' names in their order. Images are taken in the order of a hash of class and file name, so that
every piece has all classes. Which split an image is drawn for follows from its file's bytes alone, however it is stored.

Pixels are those of the file: an EXIF orientation is not applied, as TensorFlow does not when it decodes such a file.
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
import struct
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Self

import numpy as np

from common.errors import UserError, readable
from common.manifest import Feature
from common.storage.files import list_files, list_folder, open_files
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
    label_feature,
    print_left_out,
)
from components.convert.splits import NAMES, SPLITS

_MOST_RAW_BYTES = 1 << 16  # Of an image that is stored as pixels without being asked for.
_DEFAULT_SIZE = (224, 224)  # That a model gets of images that differ in size.
_BLOCK_BYTES = 1 << 22  # Of images that are held together, about.
_HEAD_BYTES = (
    1 << 12
)  # That are read of a file while only its head is looked at, unless that is longer.
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
_LAYOUT = "DIR/class/name.png, or DIR/{train,validation,test}/class/name.png"
_GRAY = frozenset({"1", "L", "LA", "I", "I;16", "I;16B"})
_ORIENTATION = 0x0112


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picture:
    """An image file, wherever it lies.

    Attributes:
      origin: Names it.
      content: The file, or its beginning, from which the rest is read when it is needed.
      label: The number of its class, or its targets.
    """

    origin: str
    content: IO[bytes]
    label: Sequence[int | float]


@dataclasses.dataclass(kw_only=True)
class _Heads:
    """Facts from the heads of images.

    Attributes:
      sizes: Each height and width, with the first image that has it.
      is_gray: Whether all are grey.
      rotated: Images that have an orientation.
      longest: Bytes of the longest file.
    """

    sizes: dict[tuple[int, int], str] = dataclasses.field(default_factory=dict)
    is_gray: bool = True
    rotated: list[str] = dataclasses.field(default_factory=list)
    longest: int = 0


def _read_heads(pictures: Iterable[Picture]) -> _Heads:
    """Returns what the heads of the images say; no pixel is decoded."""
    heads = _Heads()
    for picture in pictures:
        with readable(picture.origin), opened(picture.content, picture.origin) as image:
            heads.sizes.setdefault((image.height, image.width), picture.origin)
            heads.is_gray &= image.mode in _GRAY
            # Without that key Pillow would decode a PNG to its end to look for an orientation.
            if "exif" in image.info and image.getexif().get(_ORIENTATION, 1) != 1:
                heads.rotated.append(picture.origin)
            heads.longest = max(heads.longest, picture.content.seek(0, os.SEEK_END))
    return heads


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageExamples(Examples):
    """Images with their labels; how they are stored is known after `choose_storage`."""

    inputs: tuple[Feature, ...] = ()

    @abc.abstractmethod
    def pictures(self, piece: Piece, *, heads_only: bool = False) -> Iterator[Picture]:
        """Yields the images of a piece; the content of one is closed when the next one is asked for.

        Args:
          piece: Of the examples.
          heads_only: Whether only the heads are going to be read.
        """

    def choose_storage(
        self, opening: Opening, size: tuple[int, int] | None, encoding: str | None
    ) -> Self:
        """Decides, after a look at the heads of all images, how they are stored; and prints it.

        Args:
          opening: As given.
          size: Height and width that a model gets; None for the images' own, or a usual one if
            these differ.
          encoding: `raw` for pixels, which need one size, or `source` for whole files; None for
            pixels if a size is given, or if all have one size of at most 64 KiB.
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
        sizes_text = (
            _product(own)
            if own
            else f"{len(sizes):,} sizes from {_product(smallest)} to {_product(largest)}"
        )
        how = (
            "pixels,"
            if encoding == "raw"
            else "the files that they are (see --image-size); a model gets"
        )
        print(f"images of {sizes_text} pixels are stored as {how} {_product(shape)}", flush=True)
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
        """Reads the images, each of which has to be whole."""
        records, num_bytes = [], 0
        for picture in self.pictures(piece):
            with readable(picture.origin):
                data = picture.content.read()
            image = self.decode(data, picture.origin)
            records.append((data, image, picture.label))
            num_bytes += len(data) + image.nbytes
            if num_bytes >= _BLOCK_BYTES:
                yield self._block(records)
                records, num_bytes = [], 0
        if records:
            yield self._block(records)

    def decode(self, data: bytes, origin: str) -> np.ndarray:
        """Returns the pixels of an image that is stored so, else its height and width."""
        (feature,) = self.inputs
        if feature.encoding:
            return np.array(require_whole(data, origin))
        return decode(data, origin, channels=feature.shape[2], size=feature.shape[:2])

    def _block(self, records: Sequence[tuple[bytes, np.ndarray, Sequence[int | float]]]) -> Block:
        """Returns images, each a file with its pixels or its height and width, and its label."""
        files, images, labels = zip(*records, strict=True)
        label = label_feature(self.task, len(self.class_names or self.targets))
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
        columns = {"image": image, LABEL: np.array(labels, label.dtype).reshape(-1, *label.shape)}
        return Block(columns=columns, measures=measures, keys=keys)


def require_whole(data: bytes, origin: str) -> tuple[int, int]:
    """Reads an image file to its end, and returns its height and width; a `UserError` says that it is broken."""
    with opened(io.BytesIO(data), origin) as image:
        size = image.height, image.width
        image.draft(
            None, (1, 1)
        )  # Of a JPEG every byte is unpacked, but no more pixels than needed are computed.
        image.load()
    return size


def decode(data: bytes, origin: str, *, channels: int, size: tuple[int, int]) -> np.ndarray:
    """Returns the pixels of an image file, uint8 [height, width, channels].

    Colour comes from grey by repetition and grey from colour by luma; transparency is left out, of
    16 bits the upper 8 are kept. An image of another size is cut to its largest central part of the
    proportions asked for, and that is resized by Pillow's bilinear filter, which widens when it
    shrinks (antialiasing) and computes in whole numbers, so that the result is the same on every
    machine. The trainer's reader does the same to whole files.
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
    """Opens a Pillow image; what is wrong with it, or comes out when it is decoded, is a `UserError` that names the origin."""
    from PIL import Image, UnidentifiedImageError  # Slow to import.

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(stream, formats=("PNG", "JPEG"))
        with image:
            if math.prod(image.size) > Image.MAX_IMAGE_PIXELS:
                raise UserError(
                    f"{origin}: {image.height} x {image.width} pixels are too many; make it smaller"
                )
            yield image
    except UserError:
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
    """A folder with one folder of images for each class, or with `train`, `validation` and `test` folders that have these.

    Attributes:
      image_size: As `ImageExamples.choose_storage` takes it.
      encoding: The same.
    """

    name: str = "images"
    takes = frozenset({"image_size", "encoding"})
    image_size: tuple[int, int] | None = None
    encoding: str | None = None

    def files(self, paths: Paths) -> list[File]:
        """Returns the images."""
        return [*itertools.chain(*self._find(paths).values())]

    def open(self, paths: Paths, opening: Opening) -> FolderExamples:
        """Prints what is left out, and reads the heads of all images."""
        images = self._find(paths, print_others=True)
        class_names = sorted({_class(file) for file in itertools.chain(*images.values())})
        trained = {_class(file) for file in images["train"]}
        for name in class_names:
            if any("\ud800" <= character <= "\udfff" for character in name):
                raise UserError(f"{paths}: class {name!r} is not UTF-8; rename that folder")
            if name not in trained:
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

    def _find(self, paths: Paths, *, print_others: bool = False) -> dict[str, list[File]]:
        """Returns the images of each split in their order."""
        root = self.locate_folder(paths, f"DIR, with {_LAYOUT}")
        folders = [
            (NAMES.get(os.path.basename(path).lower()), path) for path in list_folder(root)[0]
        ]
        if not any(split == "train" and list_folder(path)[0] for split, path in folders):
            folders = [("train", root)]  # A class may be called so, too.
        classes = {
            path: split for split, folder in folders if split for path in list_folder(folder)[0]
        }
        images: dict[str, list[File]] = {split: [] for split in SPLITS if split in dict(folders)}
        visible = [file for file in list_files(root) if "/." not in file.path[len(root) :]]
        others = []
        for file in existing_files(visible):
            split = classes.get(os.path.dirname(file.path))
            is_image = file.path.lower().endswith(IMAGE_SUFFIXES) and not file.is_special
            (images[split] if split and is_image else others).append(file)
        for split, files in images.items():
            first, *more = [path for name, path in folders if name == split]
            if more:
                raise UserError(f"{first}: is not the only folder for {split}; keep one")
            if not files:
                raise UserError(
                    f"{first}: no PNG or JPEG files in folders of it; needed are {_LAYOUT}"
                )
            files.sort(key=_order)
        if print_others:
            used = {os.path.dirname(file.path) for file in itertools.chain(*images.values())}
            empty = [path for path in classes if path not in used and "/." not in path[len(root) :]]
            for left_out, why in (
                (
                    [file.path for file in others],
                    "only PNG and JPEG files in the classes' folders are read",
                ),
                (empty, "no PNG or JPEG files in these folders"),
            ):
                print_left_out(root, [path[len(root) + 1 :] for path in left_out], why)
        return images


def _order(image: File) -> bytes:
    return hashlib.sha256(os.fsencode("/".join(image.path.split("/")[-2:]))).digest()


def _class(image: File) -> str:
    return image.path.split("/")[-2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderExamples(ImageExamples):
    """Images of a folder, by split."""

    images: Mapping[str, Sequence[File]]

    def pictures(self, piece: Piece, *, heads_only: bool = False) -> Iterator[Picture]:
        """Yields the images of a piece."""
        files = self.images[piece.split][slice(*piece.part)]
        with readable(self.name):
            for file, content in zip(
                files, open_files(files, _HEAD_BYTES if heads_only else None), strict=True
            ):
                with content:
                    label = (self.class_names.index(_class(file)),)
                    yield Picture(origin=file.path, content=content, label=label)
