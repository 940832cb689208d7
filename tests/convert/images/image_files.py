"""PNG and JPEG files of every kind, and the parts that they are made of."""

import io
import random
import re
import struct
import zlib

import numpy as np
from PIL import Image

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
_PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def file(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    """An image as a file."""
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def interlaced(pixels: np.ndarray) -> bytes:
    """A PNG file of Adam7, in several chunks, from uint8 [height, width, 3]."""
    height, width = pixels.shape[:2]
    parts = (pixels[top::down, left::across] for left, top, across, down in _PASSES)
    rows = b"".join(b"\0" + row.tobytes() for part in parts if part.size for row in part)
    packed = zlib.compress(rows)
    pieces = [(b"IDAT", packed[i : i + 300]) for i in range(0, len(packed), 300)]
    return join([(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1)), *pieces, (b"IEND", b"")])


def kinds() -> dict[str, bytes]:
    """A file of every kind, noisy and smooth."""
    made = {}
    noise = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    smooth = np.add.outer(np.arange(40) * 3, np.arange(50) * 2)[..., np.newaxis].repeat(3, 2).astype(np.uint8)
    for name, pixels in (("noise", noise), ("smooth", smooth)):
        image = Image.fromarray(pixels)
        for mode in ("RGB", "L", "P", "RGBA", "LA", "1"):
            made[f"{name} {mode} PNG"] = file(image.convert(mode))
        made[f"{name} 16 bits PNG"] = file(Image.fromarray(pixels[..., 0].astype(np.uint16) * 257))
        made[f"{name} interlaced PNG"] = interlaced(pixels)
        for mode in ("RGB", "L", "CMYK"):
            for options in ({}, {"progressive": True}, {"quality": 95, "subsampling": 0}, {"restart_marker_blocks": 2}):
                made[f"{name} {mode} {options} JPEG"] = file(image.convert(mode), "JPEG", **options)
        made[f"{name} optimized CMYK JPEG"] = file(image.convert("CMYK"), "JPEG", optimize=True)
    return made


def chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Name and content of each chunk of a PNG file."""
    found, at = [], len(_SIGNATURE)
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def join(parts: list[tuple[bytes, bytes]]) -> bytes:
    """A PNG file of chunks, all with their checksums."""
    packed = (struct.pack(">I", len(body)) + kind + body for kind, body in parts)
    return _SIGNATURE + b"".join(part + struct.pack(">I", zlib.crc32(part[4:])) for part in packed)


def segments(data: bytes) -> list[bytes]:
    """The segments of a JPEG file and the scans between them."""
    found, at = [], 0
    while marker := _MARKER.search(data, at):
        end = marker.end()
        if marker[1] not in (b"\xd8", b"\xd9"):
            end += struct.unpack_from(">H", data, end)[0]
        found += [data[at : marker.start()], data[marker.start() : end]]
        at = end
    return [part for part in found if part]


def damaged(data: bytes, chance: random.Random) -> bytes:
    """The file with one to three of its parts gone, doubled, moved, renamed, cut or changed, and true checksums."""
    png = data.startswith(_SIGNATURE)
    parts = chunks(data) if png else [(part[:2], part[2:]) for part in segments(data)]
    names = [b"ABCD", b"aBCD", b"a1cd", b"IDAT", b"PLTE", b"tRNS", b"IHDR", b"IEND"]
    if not png:
        names = [bytes([0xFF, marker]) for marker in (0xC0, 0xC1, 0xC2, 0xC3, 0xC4, 0xC9, 0xDA, 0xDB, 0xFE, 0xD9)]
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        place = chance.randrange(len(parts))
        name, body = parts.pop(place)
        at = chance.randrange(len(body) + 1)
        flipped = body[:at] + bytes(byte ^ 1 << chance.randrange(8) for byte in body[at : at + 1]) + body[at + 1 :]
        others = [(name, body), (name, body[:at]), (name, flipped), (chance.choice(names), body)]
        place = chance.choice([place, chance.randrange(len(parts) + 1)])
        parts[place:place] = chance.choice([[], 2 * others[:1], *([other] for other in others)])
        if not parts:
            break
    return join(parts) if png else b"".join(name + body for name, body in parts)
