"""Whether PNG and JPEG files are whole, by the parts that they are made of.

    require(data)      # a ValueError says what is missing

Decoders differ in how much of a broken file they forgive, and one that forgives less than Pillow may come later, in the
middle of training: TensorFlow's. Whether the values in these parts make an image, a decoder is to be asked.
"""

from __future__ import annotations

import re
import struct
import zlib

_PNG = b"\x89PNG\r\n\x1a\n"
_CHUNKS = {b"IHDR": "H", b"PLTE": "P", b"IDAT": "D", b"IEND": "E"}
_ORDER = re.compile("Ha*P?a*D+a*E")  # `a` is what a decoder may pass over
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by type of colour
_PALETTE, _PALETTE_BYTES = 3, range(3, 769, 3)  # the type that needs one, and how long one can be
_AT_ONCE = [(0, 0, 1, 1)]  # first column and row of a pass over the pixels, and the steps to the next ones
_INTERLACED = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
_INFLATED_BYTES = 1 << 16  # at once, whatever a chunk may unpack to

# The next marker of a JPEG file, in a scan and between segments: no stuffed zero, no fill byte, no restart.
_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
_START, _END, _ALONE = 0xD8, 0xD9, 0x01
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})  # between these, tables have their numbers
_DECODED = frozenset({0xC0, 0xC1, 0xC2})  # baseline, extended and progressive, all with Huffman's codes


def require(data: bytes) -> None:
    """Reads the parts of a file up to the mark of its end; what comes after it is nobody's.

    Raises:
      ValueError: If one is cut, damaged, missing, unknown or given twice.
    """
    try:
        if data.startswith(_PNG):
            _require_chunks(data)
        else:
            _require_segments(data)
    except struct.error:
        raise ValueError("cut short") from None


def _require_chunks(data: bytes) -> None:
    order, at, palette_bytes, num_bytes, pixels = "", len(_PNG), 0, 0, zlib.decompressobj()
    while not order.endswith("E"):
        length, kind = struct.unpack_from(">I4s", data, at)
        content, at = data[at + 8 : at + 8 + length], at + 8 + length
        if struct.unpack_from(">I", data, at) != (zlib.crc32(kind + content),):
            raise ValueError(f"chunk {kind!r} does not have its checksum")
        at += 4
        order += "a" if kind.isalpha() and kind[:1].islower() else _CHUNKS.get(kind, "?")
        if kind == b"PLTE":
            palette_bytes = length
        while kind == b"IDAT" and content and not pixels.eof:
            num_bytes += len(pixels.decompress(content, _INFLATED_BYTES))
            content = pixels.unconsumed_tail
    if not _ORDER.fullmatch(order):
        raise ValueError("its chunks are not those of a PNG file in their order")
    width, height, bits, colour, *methods = struct.unpack_from(">IIBBBBB", data, len(_PNG) + 8)
    if methods not in ([0, 0, 0], [0, 0, 1]) or colour not in _CHANNELS:
        raise ValueError("its head is not that of a PNG file")
    if palette_bytes not in _PALETTE_BYTES and ("P" in order or colour == _PALETTE):
        raise ValueError("its palette is missing or of no such length")
    if not pixels.eof or num_bytes < _due(width, height, bits * _CHANNELS[colour], interlaced=methods[-1] == 1):
        raise ValueError("cut short: pixels are missing")


def _due(width: int, height: int, bits: int, *, interlaced: bool) -> int:
    """Bytes of so many bits a pixel, each row of each pass with its filter's byte before it."""
    total = 0
    for left, top, across, down in _INTERLACED if interlaced else _AT_ONCE:
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        if columns > 0:
            total += max(0, rows) * (1 + -(-columns * bits // 8))
    return total


def _require_segments(data: bytes) -> None:
    at, frames = 0, []
    while marker := _MARKER.search(data, at):
        at, kind = marker.end(), marker[1][0]
        if kind == _END:
            break
        if kind in _FRAMES:
            frames.append(kind)
        if kind not in (_START, _ALONE):
            at += struct.unpack_from(">H", data, at)[0]
    else:
        raise ValueError("cut short: the mark of its end is missing")
    if len(frames) != 1 or frames[0] not in _DECODED:
        raise ValueError("has not one frame of a kind that decoders know")
