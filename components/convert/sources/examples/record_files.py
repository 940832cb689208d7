"""TFRecord files: where they can be cut, and the payloads of their records, which are compared with their checksums.

    cut = cut({"train": ["train-00000-of-00002", "train-00001-of-00002.gz"]}, pieces=8, piece_bytes=1 << 26)
    for start, position, payload in payloads(cut, cut.pieces[0]): ...

Positions are places in the files, one after another, in parts of a byte: they are known without a look into the files, as
numbers of records are not. A plain file is cut at any byte at which a record starts, which the checksum of its length
tells; the piece before finds out whether that is true, for its last record has to end there. A file that is packed with
gzip or zlib is one piece. Bytes of it are counted as they are unpacked, positions by what of it has been read.
"""

import functools
import io
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from components.convert.pieces import Cut, Piece
from components.files.listing import File, found
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


def cut(splits: Mapping[str, Sequence[str]], *, pieces: int, piece_bytes: int) -> Cut:
    """Cuts the files of each split; of plain ones a few bytes are read where they are cut.

    Raises:
      UserError: If one cannot be read.
    """
    files, cut = [], []
    for split, paths in splits.items():
        with readable(paths[0]):
            inside = parallel(found, paths)
        if None in inside:
            raise UserError(f"{paths[inside.index(None)]}: no such file")
        total, before = sum(file.num_bytes for file in inside), 0
        least = pieces if split == "train" else 1
        count = least * max(1, -(-total // (least * piece_bytes)))
        for file in inside:
            # The first byte of each piece, in the split, has the first position of a share.
            shares = range(before * count // max(1, total), (before + file.num_bytes) * count // max(1, total) + 1)
            wanted = (-(-(i * total * _DENSITY // count) // _DENSITY) - before for i in shares)
            at = 0
            for stop in (*_starts(file, [byte for byte in wanted if 0 < byte < file.num_bytes]), file.num_bytes):
                if stop > at:
                    place = {"position": _DENSITY * (before + at), "extent": _DENSITY * (stop - at)}
                    cut.append(Piece(split=split, file=len(files), start=at, stop=stop, num_bytes=stop - at, **place))
                at = max(at, stop)
            files.append((file.path, file.num_bytes, file.version))
            before += file.num_bytes
    return Cut(pieces=tuple(cut), facts={"files": files})


def payloads(cut: Cut, piece: Piece) -> Iterator[tuple[int, int, bytes]]:
    """Of each record of a piece, in order: its first byte in the file, its position, its payload.

    Raises:
      UserError: If the file is missing, damaged, or no TFRecord file.
    """
    path, num_bytes, version = cut.facts["files"][piece.file]
    listed = File(path=path, num_bytes=num_bytes, version=version)
    with readable(path), opened(listed, piece.start, piece.stop) as raw:
        packed = not piece.start and _packed(raw)
        file = _Unpacked(raw, path) if packed else raw
        raw.seek(start := piece.start)
        while packed or start < piece.stop:
            position = piece.position + (file.place() if packed else _DENSITY * (start - piece.start))
            if not (head := file.read(HEADER_BYTES)):
                break
            if not _is_header(head):
                what = "damaged, or no TFRecord file (plain, or packed with gzip or zlib)"
                raise UserError(f"{path}: {what}: wrong length of the record at byte {start:,}")
            length, _ = _HEADER.unpack(head)
            payload = file.read(length)
            if file.read(FOOTER_BYTES) != checksums([payload], 1).tobytes():
                raise UserError(f"{path}: damaged: wrong checksum of the record at byte {start:,}")
            yield start, position, payload
            start += HEADER_BYTES + length + FOOTER_BYTES
        if not packed and start != piece.stop:
            raise UserError(
                f"{path}: cannot be cut at byte {piece.stop:,}, where a record holds what looks like another; pack the "
                "file with gzip, and it is read as a whole"
            )


def _starts(file: File, wanted: Sequence[int]) -> Iterator[int]:
    """Of a file that is not packed, the first record that starts at a byte or after it, for each that is wanted."""
    if not wanted:
        return
    with readable(file.path):
        with opened(file, 0, HEADER_BYTES) as data:
            if _packed(data):
                return
        for at in wanted:
            with opened(file, at, at + _SEARCH_BYTES) as data:
                data.seek(at)
                window = b""
                while more := data.read(_SEARCH_BYTES):
                    window = window[1 - HEADER_BYTES :] + more
                    starts = (match.start() for match in _SHORT.finditer(window))
                    first = next((i for i in starts if _is_header(window[i : i + HEADER_BYTES])), None)
                    if first is not None:
                        yield data.tell() - len(window) + first
                        break


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
