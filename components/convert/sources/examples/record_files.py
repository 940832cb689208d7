"""TFRecord files: the payloads of their records, which are compared with their checksums.

    cut = cut({"train": listed("gs://bucket/flowers")})
    for start, position, payload in payloads(cut, cut.pieces[0]): ...

A file is a piece. The position of a record is its first byte; in a file that is packed with gzip it is its number, for which
the records are counted beforehand.
"""

import collections
import contextlib
import dataclasses
import functools
import gzip
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from common.errors import UserError, readable
from common.storage.files import open_file
from common.storage.storage import File, map_in_threads
from components.convert.framing import FOOTER_BYTES, HEADER_BYTES, checksums
from components.convert.pieces import Cut, Piece

_HEADER = struct.Struct("<QI")
_MOST_BYTES = (1 << 31) - 1  # Of a payload: no protobuf message has more.
_GZIP = b"\x1f\x8b\x08"


def cut(splits: Mapping[str, Sequence[File]]) -> Cut:
    """Makes a piece of each file of each split that has any records."""
    files = [(split, file) for split, of_split in splits.items() for file in of_split]
    extents = map_in_threads(lambda item: _extent(item[1]), files)
    found, ends = [], collections.Counter()
    for number, ((split, file), extent) in enumerate(zip(files, extents, strict=True)):
        if extent:
            place = {"stop": file.num_bytes, "position": ends[split], "extent": extent}
            found.append(Piece(split=split, file=number, num_bytes=file.num_bytes, **place))
            ends[split] += extent
    return Cut(pieces=tuple(found), facts={"files": [dataclasses.asdict(file) for _, file in files]})


def payloads(cut: Cut, piece: Piece) -> Iterator[tuple[int, int, bytes]]:
    """Yields of each record of a piece its first byte in the unpacked file, its position and its payload."""
    file = File(**cut.facts["files"][piece.file])
    with _opened(file, piece.stop) as (data, packed):
        for number, (start, payload) in enumerate(_records(data, file.path)):
            yield start, piece.position + (number if packed else start), payload


def _extent(file: File) -> int:
    """How many positions a file takes."""
    with _opened(file, HEADER_BYTES) as (data, packed):
        return sum(1 for _ in _records(data, file.path)) if packed else file.num_bytes


def _records(data: IO[bytes], path: str) -> Iterator[tuple[int, bytes]]:
    """Yields the first byte and the payload of each record. Damage is an error."""
    start = 0
    while head := data.read(HEADER_BYTES):
        if not _is_header(head) or (length := _HEADER.unpack(head)[0]) > _MOST_BYTES:
            what = "damaged, or no TFRecord file (plain, or packed with gzip)"
            raise UserError(f"{path}: {what}: wrong length of the record at byte {start:,}")
        payload = data.read(length)
        if data.read(FOOTER_BYTES) != checksums([payload], 1).tobytes():
            raise UserError(f"{path}: damaged: wrong checksum of the record at byte {start:,}")
        yield start, payload
        start += HEADER_BYTES + length + FOOTER_BYTES


@contextlib.contextmanager
def _opened(file: File, stop: int) -> Iterator[tuple[IO[bytes], bool]]:
    """The content of a file, of which so many bytes are likely to be read, and whether it is packed."""
    try:
        with readable(file.path), open_file(file, stop=stop) as raw:
            head = raw.peek(HEADER_BYTES)[:HEADER_BYTES]
            packed = head.startswith(_GZIP) and not _is_header(head)  # the first length may begin with these bytes
            with gzip.open(raw) if packed else raw as data:
                yield data, packed
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{file.path}: damaged: {error}") from None


@functools.lru_cache  # lengths repeat
def _is_header(head: bytes) -> bool:
    return len(head) == HEADER_BYTES and head[8:] == checksums([head[:8]], 1).tobytes()
