"""The files of a split as bytes: where each record lies, pieces of files mapped or read, records checked.

shards = Shards(manifest, "data/mnist", "train")
blocks = [shards.block(*piece, shards.read) for piece in shards.pieces(0, 1000)]  # records 0 to 999 of the split
records = take(shards, blocks, np.array([7, 400]))

A file is known by its first bytes before it is used, and every record is checked against its own CRC-32C when it is
taken, so what was damaged or exchanged on the way never becomes a batch.
Imports no TensorFlow.
"""

import contextlib
import dataclasses
import itertools
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

import google_crc32c
import numpy as np
from etils import epath

from trainer.base.errors import UserError
from trainer.base.files import crc32c, is_remote, store_errors
from trainer.base.framing import FOOTER_BYTES, HEADER_BYTES, checksums
from trainer.base.manifest import HEAD_BYTES, Manifest, Shard
from trainer.data.reader.ranges import COUNTS, opened, read_range

# From the number of a file, the first byte and the end byte of a range to the range, uint8.
Fetch = Callable[[int, int, int], np.ndarray]


def in_bucket(data_dir: str) -> bool:
    """Whether a directory is an object store's, or one that looks like a local one (Vertex AI mounts buckets there)."""
    return is_remote(data_dir) or data_dir.startswith("/gcs/")


def damaged(
    path: os.PathLike[str], what: str = "is not the file that the manifest lists (CRC-32C differs)"
) -> UserError:
    """The error that names a file that is not as it was written."""
    return UserError(f"{path} {what}; copy the file again, or convert the dataset again")


@contextlib.contextmanager
def readable(path: os.PathLike[str]) -> Iterator[None]:
    """Names the file that is missing or cannot be read."""
    try:
        with store_errors():
            yield
    except FileNotFoundError:
        raise UserError(f"{path} is missing; copy it there, or convert the dataset again") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error}); see whether the storage is up") from None


def whole_file(path: epath.Path, checksum: str) -> bytes:
    """The content of a shard, or of a file beside it.

    Raises:
      UserError: If it is missing or does not have the CRC-32C, or cannot be read.
    """
    with readable(path):
        content = read_range(path, 0)
    if crc32c(content) != checksum:
        raise damaged(path)
    return content


def content_hashes(manifest: Manifest, data_dir: str, split: str) -> Iterator[np.ndarray]:
    """What tells a split's records from others, in whatever dataset these are: 64-bit hashes, uint64 [N] of each file.

    Records that are equal but for the label have one hash. Raises what `whole_file` raises.
    """
    for shard in manifest.split(split).shards:
        yield np.frombuffer(whole_file(epath.Path(data_dir) / shard.hashes, shard.hashes_crc32c), "<u8")


@dataclasses.dataclass(frozen=True)
class Block:
    """Neighbouring records of one file."""

    first: int  # index of the first in the split
    shard: int  # number of the file
    row: int  # of the first, in that file
    data: np.ndarray  # their bytes, uint8
    starts: np.ndarray  # int64 [records + 1], where they begin in the data and the last ends

    def __len__(self) -> int:
        return len(self.starts) - 1


class Shards:
    """The files of a split.

    Attributes:
      paths: Of the files.
      starts: int64 [files + 1], index in the split of the first record of each, and the number of examples.
      record_bytes: Of every record; None if they differ.
    """

    def __init__(self, manifest: Manifest, data_dir: str, split: str) -> None:
        """Reads the indices of records that differ in length, and of local files the sizes.

        Raises:
          UserError: If a file is missing or differs from what the manifest says.
        """
        self._shards, self.record_bytes = manifest.split(split).shards, manifest.record_bytes
        self.paths = [epath.Path(data_dir) / shard.file for shard in self._shards]
        self.starts = np.cumsum([0, *(shard.examples for shard in self._shards)])
        self._offsets = [self._where(shard, epath.Path(data_dir)) for shard in self._shards]
        self._known: set[int] = set()
        self._identifying = [threading.Lock() for _ in self._shards]
        if in_bucket(data_dir):
            return
        for path, shard in zip(self.paths, self._shards, strict=True):
            with readable(path):
                size = os.stat(path).st_size
            if size != shard.bytes:
                raise damaged(path, f"has {size:,} bytes, not the manifest's {shard.bytes:,}")

    def _where(self, shard: Shard, directory: epath.Path) -> np.ndarray:
        if self.record_bytes:
            return np.arange(shard.examples + 1) * self.record_bytes
        return np.frombuffer(whole_file(directory / shard.index, shard.index_crc32c), "<i8")

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """File, first row and end row there of each piece of the records `start` to `stop` of the split."""
        shard = int(np.searchsorted(self.starts, start, side="right")) - 1
        while start < stop:
            end = min(stop, int(self.starts[shard + 1]))
            yield shard, start - int(self.starts[shard]), end - int(self.starts[shard])
            start, shard = end, shard + 1

    def identify(self, shard: int, fetch: Fetch) -> None:
        """Compares the beginning of a file, once, with what the manifest says: it may have another one's name.

        Raises:
          UserError: If it begins otherwise.
        """
        listed = self._shards[shard]
        with self._identifying[shard]:
            if shard not in self._known:
                head = fetch(shard, 0, min(HEAD_BYTES, listed.bytes))
                if crc32c(head) != listed.head_crc32c:
                    raise damaged(
                        self.paths[shard], "is not the file that the manifest lists, or is damaged at its start"
                    )
                self._known.add(shard)

    def block(self, shard: int, row: int, end: int, fetch: Fetch) -> Block:
        """The records `row` to `end` of a file, which is identified first."""
        self.identify(shard, fetch)
        return self._block(shard, row, end, fetch)

    def _block(self, shard: int, row: int, end: int, fetch: Fetch) -> Block:
        starts = self._offsets[shard][row : end + 1]
        data = fetch(shard, int(starts[0]), int(starts[-1]))
        return Block(int(self.starts[shard]) + row, shard, row, data, starts - starts[0])

    def whole(self, shard: int) -> np.ndarray | list[bytes]:
        """All records of a file in the form of `take`, after a look at the file's own CRC-32C."""
        content = whole_file(self.paths[shard], self._shards[shard].crc32c)
        if self.record_bytes:
            return np.frombuffer(content, np.uint8).reshape(-1, self.record_bytes)
        pairs = itertools.pairwise(self._offsets[shard].tolist())
        return [content[start + HEADER_BYTES : end - FOOTER_BYTES] for start, end in pairs]

    def in_order(self, batch_size: int, start: int, stop: int) -> Iterator[list[Block]]:
        """The records `start` to `stop` of the split in batches.

        Files are read through once. One of which all records are asked for is compared with its CRC-32C when it ends, and
        of another its beginning with what the manifest says.
        """
        blocks: list[Block] = []
        for shard, row, last in self.pieces(start, stop):
            path, listed, digest = self.paths[shard], self._shards[shard], google_crc32c.Checksum()
            whole = last - row == listed.examples
            if not whole:
                self.identify(shard, self.read)
            begin, end = self._offsets[shard][[row, last]].tolist()
            with readable(path), opened(path, begin, end + whole) as file:  # has a whole one a byte more?
                while row < last:
                    end = min(row + batch_size - sum(map(len, blocks)), last)
                    blocks.append(self._block(shard, row, end, _passing(path, file, digest)))
                    row = end
                    if sum(map(len, blocks)) == batch_size:
                        yield blocks
                        blocks = []
                if whole:
                    digest.update(file.read(-1))
            if whole and digest.hexdigest().decode() != listed.crc32c:
                raise damaged(path)
        if blocks:
            yield blocks

    def read(self, shard: int, start: int, end: int) -> np.ndarray:
        """The bytes of a range of a file, uint8, in one sequential read; a store that fails is asked again.

        Raises:
          UserError: If the file is missing or too short, or cannot be read.
        """
        path = self.paths[shard]
        with readable(path):
            content = read_range(path, start, end)
        return _whole(path, content, start, end)


def _passing(path: epath.Path, file: BinaryIO, digest: google_crc32c.Checksum) -> Fetch:
    """The next bytes of an open file, which the digest sees too."""

    def fetch(shard: int, start: int, end: int) -> np.ndarray:
        content = file.read(end - start)
        digest.update(content)
        return _whole(path, content, start, end)

    return fetch


def _whole(path: epath.Path, content: bytes, start: int, end: int) -> np.ndarray:
    if len(content) != end - start:
        raise damaged(path, f"ends before byte {end:,}")
    return np.frombuffer(content, np.uint8)


class Mapping:
    """Local files as memory that is read when it is touched. What was read is the system's to drop, not ours to hold."""

    def __init__(self, paths: Sequence[os.PathLike[str]]) -> None:
        self._maps = []
        for path in paths:
            with readable(path), open(path, "rb") as file:
                self._maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def __call__(self, shard: int, start: int, end: int) -> np.ndarray:
        """A range of a file, which the system is asked to read ahead."""
        COUNTS.add(data_bytes_read=end - start)
        page = start - start % mmap.PAGESIZE
        with contextlib.suppress(AttributeError, OSError):  # advice is not everywhere
            self._maps[shard].madvise(mmap.MADV_WILLNEED, page, end - page)
        return np.frombuffer(self._maps[shard], np.uint8, end - start, start)


def take(shards: Shards, blocks: Sequence[Block], indices: np.ndarray) -> np.ndarray:
    """The records of some indices [N] in the split, each checked, from blocks in their order that have them all.

    Returns:
      uint8 [N, record_bytes] whole records, or where they differ in length the payloads, objects [N] of bytes.

    Raises:
      UserError: Naming the file of the first that is damaged.
    """
    firsts = np.array([block.first for block in blocks])
    which = np.searchsorted(firsts, indices, side="right") - 1
    wanted = zip(which.tolist(), (indices - firsts[which]).tolist(), strict=True)
    if shards.record_bytes is None:
        payloads = np.empty(len(indices), object)
        for i, (block, row) in enumerate(wanted):
            payloads[i] = _payload(shards, blocks[block], row)
        return payloads
    size = shards.record_bytes
    records = np.empty((len(indices), size), np.uint8)
    for i, (block, row) in enumerate(wanted):
        records[i] = blocks[block].data[row * size : (row + 1) * size]
    if (bad := _first_bad(records)) is not None:
        block = blocks[which[bad]]
        raise _broken(shards, block, int(indices[bad]) - block.first)
    return records


def _first_bad(records: np.ndarray) -> int | None:
    """The first of records [N, size] whose length or checksums are not right."""
    length = np.array([records.shape[1] - HEADER_BYTES - FOOTER_BYTES], "<u8").view(np.uint8)
    header = np.concatenate([length, checksums([length], 1).view(np.uint8)])
    payloads = records[:, HEADER_BYTES:-FOOTER_BYTES]
    footers = records[:, -FOOTER_BYTES:].copy().view("<u4")[:, 0]
    bad = (records[:, :HEADER_BYTES] != header).any(axis=1) | (checksums(payloads, len(records)) != footers)
    return int(bad.argmax()) if bad.any() else None


def _payload(shards: Shards, block: Block, row: int) -> bytes:
    record = block.data[block.starts[row] : block.starts[row + 1]]
    stated = record[:HEADER_BYTES].tobytes() + record[-FOOTER_BYTES:].tobytes()
    payload = record[HEADER_BYTES:-FOOTER_BYTES].tobytes()
    length = len(payload).to_bytes(8, "little")
    if stated != length + checksums([length, payload], 2).tobytes():
        raise _broken(shards, block, row)
    return payload


def _broken(shards: Shards, block: Block, row: int) -> UserError:
    return damaged(shards.paths[block.shard], f"is damaged: record {block.row + row} does not have its checksum")
