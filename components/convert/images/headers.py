"""PNG and JPEG files: what their heads say, whether they are whole, and their pixels.

    pixels = decode(path.read_bytes(), path, channels=3, size=(224, 224))     # uint8 [224, 224, 3]

Pixels are those of the file: an EXIF orientation is not applied, as TensorFlow does not when it decodes such a file.
"""

import contextlib
import io
import math
import struct
import warnings
import zlib
from collections.abc import Iterator
from typing import IO

import numpy as np
from PIL import Image, UnidentifiedImageError

from common.errors import UserError

_FORMATS = ("PNG", "JPEG")
_GRAY = frozenset({"1", "L", "LA", "I", "I;16", "I;16B"})
_ORIENTATION = 0x0112
_BROKEN = (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, Image.DecompressionBombError)


def head(stream: IO[bytes], place: str) -> tuple[tuple[int, int], bool, bool]:
    """Height and width of an image, whether it is grey, and whether it is to be rotated; nothing is decoded yet."""
    with _opened(stream, place) as image:
        # Without that key Pillow would decode a PNG to its end to look for an orientation.
        rotated = "exif" in image.info and image.getexif().get(_ORIENTATION, 1) != 1
        return (image.height, image.width), image.mode in _GRAY, rotated


def require_whole(data: bytes, place: str) -> tuple[int, int]:
    """Reads an image file to its end, and returns its height and width; a `UserError` says that it is broken."""
    with _opened(io.BytesIO(data), place) as image:
        size = image.height, image.width
        image.draft(None, (1, 1))  # of a JPEG every byte is unpacked, but no more pixels than needed are computed
        image.load()
    return size


def decode(data: bytes, place: str, *, channels: int, size: tuple[int, int]) -> np.ndarray:
    """The pixels of an image file, uint8 [height, width, channels].

    Colour comes from grey by repetition and grey from colour by luma; transparency is left out, of 16 bits the upper 8
    are kept. An image of another size is cut to its largest central part of the proportions asked for, and that is
    resized by Pillow's bilinear filter, which widens when it shrinks (antialiasing) and computes in whole numbers, so
    that the result is the same on every machine. The trainer's reader does the same to whole files.
    """
    with _opened(io.BytesIO(data), place) as image:
        image.load()
        if image.mode.startswith("I"):
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        image = image.convert("L" if channels == 1 else "RGB")
        if (image.height, image.width) != size:
            scale = min(image.height / size[0], image.width / size[1])
            tall, wide = (max(1, round(scale * length)) for length in size)
            top, left = (image.height - tall) // 2, (image.width - wide) // 2
            image = image.crop((left, top, left + wide, top + tall)).resize(size[::-1], Image.Resampling.BILINEAR)
        return np.asarray(image).reshape(*size, channels)


@contextlib.contextmanager
def _opened(stream: IO[bytes], place: str) -> Iterator[Image.Image]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(stream, formats=_FORMATS)
        with image:
            if math.prod(image.size) > Image.MAX_IMAGE_PIXELS:
                raise UserError(f"{place}: {image.height} x {image.width} pixels are too many; make it smaller")
            yield image
    except UserError:
        raise
    except UnidentifiedImageError:
        raise UserError(f"{place}: is no PNG or JPEG image") from None
    except _BROKEN as error:
        raise UserError(f"{place}: broken image ({getattr(error, 'strerror', None) or error})") from None
