"""TFRecord files: where they can be cut, and the payloads of their records, which are compared with their checksums.

    cut = cut({"train": listed("gs://bucket/flowers")}, pieces=8, piece_bytes=1 << 26)
    for start, position, payload in payloads(cut, cut.pieces[0]): ...

Positions are places in the files, one after another, in parts of a byte: they are known without a look into the files, as
numbers of records are not. A plain file is cut at any byte at which a record starts, which the checksum of its length
tells; the piece before finds out whether that is true, for its last record has to end there. A file that is packed with
gzip or zlib is one piece. Bytes of it are counted as they are unpacked, positions by what of it has been read.
"""

import dataclasses
import functools
import io
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from components.convert.pieces import Cut, Piece
from components.files.listing import File
from components.files.reading import opened
from components.files.store import parallel
from trainer.base.errors import UserError, readable
from trainer.base.framing import FOOTER_BYTES, HEADER_BYTES, checksums

_DENSITY = 128  # positions a byte; what is unpacked of a byte are less than 80 records, which have 20 bytes at least
_HEADER = struct.Struct("<QI")
_SHORT = re.compile(rb"(?=.{5}\0\0\0.{4})", re.DOTALL)  # a length that a record can have, and its checksum
_GZIP, _EITHER = b"\x1f\x8b\x08", 47  # that of zlib, or that of gzip: what `zlib` calls `wbits`
_CHUNK_BYTES = 1 << 16  # of a file that are unpacked at once; positions in packed files depend on it
_SEARCH_BYTES = 1 << 14  # that are read at once where a file is cut


def cut(splits: Mapping[str, Sequence[File]], *, pieces: int, piece_bytes: int) -> Cut:
    """Cuts the files of each split; of plain ones a few bytes are read where they are cut."""
    places = []  # of each file: its split, itself, the bytes of the split before it, and where it would be cut
    for split, files in splits.items():
        total, before = sum(file.num_bytes for file in files), 0
        least = pieces if split == "train" else 1
        count = least * max(1, -(-total // (least * piece_bytes)))
        for file in files:
            # The first byte of each piece, in the split, has the first position of a share.
            shares = range(before * count // max(1, total), (before + file.num_bytes) * count // max(1, total) + 1)
            wanted = (-(-(i * total * _DENSITY // count) // _DENSITY) - before for i in shares)
            places.append((split, file, before, [byte for byte in wanted if 0 < byte < file.num_bytes]))
            before += file.num_bytes
    found, starts = [], _starts([(file, wanted) for _, file, _, wanted in places if wanted])
    for number, (split, file, before, _) in enumerate(places):
        at = 0
        for stop in (*starts.get(file, ()), file.num_bytes):
            if stop > at:
                place = {"position": _DENSITY * (before + at), "extent": _DENSITY * (stop - at)}
                found.append(Piece(split=split, file=number, start=at, stop=stop, num_bytes=stop - at, **place))
            at = max(at, stop)
    return Cut(pieces=tuple(found), facts={"files": [dataclasses.asdict(file) for _, file, _, _ in places]})


def payloads(cut: Cut, piece: Piece) -> Iterator[tuple[int, int, bytes]]:
    """Of each record of a piece, in order: its first byte in the file, its position, its payload. Damage is an error."""
    file = File(**cut.facts["files"][piece.file])
    path = file.path
    with readable(path), opened(file, piece.start, piece.stop) as raw:
        packed = not piece.start and _packed(raw)
        data = _Unpacked(raw, path) if packed else raw
        raw.seek(start := piece.start)
        while packed or start < piece.stop:
            position = piece.position + (data.place() if packed else _DENSITY * (start - piece.start))
            if not (head := data.read(HEADER_BYTES)):
                break
            if not _is_header(head):
                what = "damaged, or no TFRecord file (plain, or packed with gzip or zlib)"
                raise UserError(f"{path}: {what}: wrong length of the record at byte {start:,}")
            length, _ = _HEADER.unpack(head)
            payload = data.read(length)
            if data.read(FOOTER_BYTES) != checksums([payload], 1).tobytes():
                raise UserError(f"{path}: damaged: wrong checksum of the record at byte {start:,}")
            yield start, position, payload
            start += HEADER_BYTES + length + FOOTER_BYTES
        if not packed and start != piece.stop:
            raise UserError(
                f"{path}: cannot be cut at byte {piece.stop:,}, where a record holds what looks like another; pack the "
                "file with gzip, and it is read as a whole"
            )


def _starts(places: Sequence[tuple[File, Sequence[int]]]) -> dict[File, list[int]]:
    """Of files that are not packed, for each byte that is wanted the first record that starts there or later."""
    packed = parallel(_is_packed, [file for file, _ in places])
    jobs = [(file, byte) for (file, wanted), skip in zip(places, packed, strict=True) if not skip for byte in wanted]
    starts: dict[File, list[int]] = {file: [] for file, _ in jobs}
    for (file, _), start in zip(jobs, parallel(lambda job: _start(*job), jobs), strict=True):
        starts[file].append(start)
    return starts


def _is_packed(file: File) -> bool:
    with readable(file.path), opened(file, 0, HEADER_BYTES) as data:
        return _packed(data)


def _start(file: File, byte: int) -> int:
    """Where the first record starts that does so at a byte or after it; the end of the file if none does."""
    with readable(file.path), opened(file, byte, byte + _SEARCH_BYTES) as data:
        window = b""
        while more := data.read(_SEARCH_BYTES):
            window = window[1 - HEADER_BYTES :] + more
            for match in _SHORT.finditer(window):
                if _is_header(window[match.start() : match.start() + HEADER_BYTES]):
                    return data.tell() - len(window) + match.start()
    return file.num_bytes


def _packed(file: IO[bytes]) -> bool:
    """Whether a file is packed; the first length of one that is not may begin with the same bytes."""
    head = file.read(HEADER_BYTES)
    zlib_header = head[:1] and head[0] & 15 == 8 and head[0] < 128 and int.from_bytes(head[:2], "big") % 31 == 0
    return (head.startswith(_GZIP) or bool(zlib_header)) and not _is_header(head)


@functools.lru_cache  # lengths repeat
def _is_header(head: bytes) -> bool:
    return len(head) == HEADER_BYTES and head[8:] == checksums([head[:8]], 1).tobytes()


class _Unpacked:
    """Reads a file that is packed, in one or several parts after one another."""

    def __init__(self, file: IO[bytes], path: str):
        self._file, self._path, self._inflate = file, path, zlib.decompressobj(_EITHER)
        self._chunk, self._packed_bytes, self._held, self._held_bytes = 0, 0, io.BytesIO(), 0

    def place(self) -> int:
        """Where the next byte is, in so many parts of a byte of the file as there are positions."""
        while self._held.tell() == self._held_bytes and self._unpack():
            pass
        inside = self._held.tell() * self._packed_bytes * _DENSITY // max(1, self._held_bytes)
        return self._chunk * _DENSITY + inside

    def read(self, size: int) -> bytes:
        """So many bytes, or less at the end."""
        parts = [self._held.read(size)]
        while (size := size - len(parts[-1])) and self._unpack():
            parts.append(self._held.read(size))
        return b"".join(parts)

    def _unpack(self) -> bool:
        """Unpacks more of the file; returns whether there is more."""
        self._chunk, packed = self._file.tell(), self._file.read(_CHUNK_BYTES)
        if not packed and not self._inflate.eof:
            raise UserError(f"{self._path}: damaged: it ends within what is packed")
        self._packed_bytes, parts = len(packed), []
        try:
            while packed:
                if self._inflate.eof:
                    self._inflate = zlib.decompressobj(_EITHER)
                parts.append(self._inflate.decompress(packed))
                packed = self._inflate.unused_data
        except zlib.error as error:
            raise UserError(f"{self._path}: damaged: {error}") from None
        self._held_bytes = sum(map(len, parts))
        self._held = io.BytesIO(b"".join(parts))
        return self._packed_bytes > 0
