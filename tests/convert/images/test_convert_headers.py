import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from common.errors import UserError
from components.convert.images import headers

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


def file(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    """An image as a file."""
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def decode(data: bytes, channels: int = 3, size: tuple[int, int] = (20, 30)) -> np.ndarray:
    return headers.decode(data, "place", channels=channels, size=size)


def head(data: bytes) -> tuple:
    return headers.head(io.BytesIO(data), "place")


GRAY, BITS = PIXELS[..., 0], PIXELS[..., 0] > 127
FEW = Image.fromarray(PIXELS).quantize(16)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.fromarray(PIXELS), PIXELS),
        (Image.fromarray(np.concatenate([PIXELS, PIXELS[..., :1]], axis=2)), PIXELS),
        (FEW, np.asarray(FEW.convert("RGB"))),
        (Image.fromarray(GRAY), np.repeat(GRAY[..., np.newaxis], 3, axis=2)),
        (Image.fromarray(GRAY), GRAY[..., np.newaxis]),
        (Image.fromarray(GRAY.astype(np.uint16) * 256 + 255), GRAY[..., np.newaxis]),
        (Image.fromarray(BITS), BITS[..., np.newaxis] * 255),
    ],
    ids=["colour", "alpha", "palette", "gray as colour", "gray", "16 bits", "1 bit"],
)
def test_every_kind_of_png_becomes_three_channels_or_one(image, expected):
    np.testing.assert_array_equal(decode(file(image), expected.shape[2]), expected)


@pytest.mark.parametrize(("mode", "gray"), [("1", True), ("L", True), ("LA", True), ("P", False), ("RGBA", False)])
def test_the_head_tells_gray_from_colour(mode, gray):
    assert head(file(Image.new(mode, (30, 20)))) == ((20, 30), gray, False)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_an_orientation_is_seen_and_not_applied(kind):
    exif = Image.Exif()
    exif[0x0112] = 6
    data = file(Image.fromarray(PIXELS), kind, exif=exif)
    assert head(data) == ((20, 30), False, True)
    assert decode(data).shape == (20, 30, 3)


def test_the_central_part_of_the_proportions_is_resized():
    bars = np.zeros((20, 40, 3), np.uint8)
    bars[:, 10:30] = 255  # the central square
    np.testing.assert_array_equal(decode(file(Image.fromarray(bars)), size=(8, 8)), np.full((8, 8, 3), 255))
    assert decode(file(Image.fromarray(PIXELS)), size=(64, 48)).shape == (64, 48, 3)
    for size in ((1, 1000), (1000, 1), (1, 1)):  # no proportions leave nothing
        assert decode(file(Image.new("RGB", (1, 1))), size=size).shape == (*size, 3)


def test_resizing_gives_the_same_bytes_on_every_machine():
    ramp = np.arange(600, dtype=np.uint32).reshape(20, 30) * 7 % 256
    resized = decode(file(Image.fromarray(ramp.astype(np.uint8))), 1, size=(5, 7))
    assert zlib.crc32(resized.tobytes()) == 2689462674


def png(width: int, height: int) -> bytes:
    """A file whose head promises so many pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    packed = (struct.pack(">I", len(body)) + kind + body for kind, body in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(part + struct.pack(">I", zlib.crc32(part[4:])) for part in packed)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no PNG or JPEG"),
        (b"hello", "no PNG or JPEG"),
        (file(Image.fromarray(PIXELS), "GIF"), "no PNG or JPEG"),
        (file(Image.fromarray(PIXELS), "WEBP"), "no PNG or JPEG"),
        (png(30, 20), "broken image"),
        (png(20_000, 20_000), "too many|exceeds"),
        (png(10_000, 10_000), "10000 x 10000 pixels are too many"),
    ],
    ids=["empty", "text", "GIF", "WEBP", "no pixels", "bomb", "large"],
)
def test_what_is_no_image_is_refused_in_one_line(data, message, recwarn):
    with pytest.raises(UserError, match=f"^place: .*({message})[^\n]*$"):
        headers.require_whole(data, "place")
    assert not recwarn


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_file_that_is_cut_is_refused(kind):
    data = file(Image.fromarray(PIXELS), kind)
    for length in range(20, len(data) * 9 // 10, 97):
        with pytest.raises(UserError, match=r"^place: "):
            headers.require_whole(data[:length], "place")


def test_a_flipped_byte_of_pixels_in_a_png_is_refused():
    whole = file(Image.fromarray(PIXELS))
    for i in range(50, len(whole) - 20, 97):
        with pytest.raises(UserError, match=r"^place: broken image"):
            headers.require_whole(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :], "place")
