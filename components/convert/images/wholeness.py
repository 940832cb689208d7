"""Whether PNG and JPEG files are whole, by the parts that they are made of.

    require(data)      # a ValueError says what is missing

Decoders differ in how much of a broken file they forgive, and one that forgives less than Pillow may come later, in the
middle of training: TensorFlow's. Whether the values in these parts make an image, a decoder is to be asked.
"""

import re
import struct
import zlib

_PNG = b"\x89PNG\r\n\x1a\n"
_CHUNKS = {b"IHDR": "H", b"PLTE": "P", b"IDAT": "D", b"IEND": "E"}
_ORDER = re.compile("Ha*P?a*D+a*E")  # `a` is what a decoder may pass over
_PALETTE, _PALETTE_BYTES = 3, range(3, 769, 3)  # the type of colour that needs one, and how long one can be
_CHANNELS = {0: 1, 2: 3, _PALETTE: 1, 4: 2, 6: 4}  # by type of colour
_INFLATED_BYTES = 1 << 16  # at once, whatever a chunk may unpack to
# The next marker of a JPEG file, in a scan and between segments: no stuffed zero, no fill byte, no restart.
_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
_START, _END, _ALONE = b"\xd8", b"\xd9", b"\x01"


def require(data: bytes) -> None:
    """Reads the parts of a file up to the mark of its end; what comes after it is nobody's.

    One that is cut, damaged, missing, unknown or given twice is a `ValueError`.
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
    row_bytes = -(-width * bits * _CHANNELS[colour] // 8)
    if methods[-1] == 0:
        row_bytes += 1  # names the row's filter; interlaced rows have more of these, and a few are not missed
    if not pixels.eof or num_bytes < height * row_bytes:
        raise ValueError("cut short: pixels are missing")


def _require_segments(data: bytes) -> None:
    at = 0
    while marker := _MARKER.search(data, at):
        at = marker.end()
        if marker[1] == _END:
            return
        if marker[1] not in (_START, _ALONE):
            at += struct.unpack_from(">H", data, at)[0]
    raise ValueError("cut short: the mark of its end is missing")
