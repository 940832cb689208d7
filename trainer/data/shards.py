"""The files of a split as bytes: where each record lies, records read one after the other or by index, each of them checked.

    shards = Shards(manifest, "data/mnist", "train")
    for records in shards.in_order(512, start=0, stop=1000): ...   # read once, from wherever the files are
    records = MappedRecords(shards).take(np.array([7, 400]))       # of files on a local disk, mapped into memory

A file is known by its first bytes before it is used, and every record is checked against its own CRC-32C, so what was
damaged or exchanged on the way never becomes a batch. Imports no TensorFlow.
"""

import contextlib
import itertools
import mmap
import os
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import google_crc32c
import numpy as np
from etils import epath

from common.errors import UserError, store_errors
from common.framing import FOOTER_BYTES, HEADER_BYTES, checksums
from common.manifest import HEAD_BYTES, Manifest, Shard
from common.storage.files import crc32c
from common.storage.storage import is_remote


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
    except EOFError:
        raise damaged(path, "ends too early") from None
    except FileNotFoundError:
        raise UserError(f"{path} is missing; copy it there, or convert the dataset again") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error}); see whether the storage is up") from None


def whole_file(path: epath.Path, checksum: str) -> bytes:
    """The content of a shard, or of a file beside it.

    Raises:
      UserError: If it is missing or does not have the CRC-32C, or cannot be read.
    """
    with readable(path), path.open("rb") as file:
        content = file.read()
    if crc32c(content) != checksum:
        raise damaged(path)
    return content


def content_hashes(manifest: Manifest, data_dir: str, split: str) -> Iterator[np.ndarray]:
    """What tells a split's records from others, in whatever dataset these are: 64-bit hashes, uint64 [N] of each file.

    Records that are equal but for the label have one hash. Raises what `whole_file` raises.
    """
    for shard in manifest.split(split).shards:
        yield np.frombuffer(whole_file(epath.Path(data_dir) / shard.hashes, shard.hashes_crc32c), "<u8")


class Shards:
    """The files of a split.

    Attributes:
      paths: The files.
      starts: int64 [files + 1], index in the split of the first record of each, and the number of examples.
      offsets: Per file int64 [examples + 1], the bytes where its records begin and where the last one ends.
      record_bytes: Size of every record; None if they differ.
    """

    def __init__(self, manifest: Manifest, data_dir: str, split: str) -> None:
        """Reads the indices of records that differ in length, and of local files the sizes.

        Raises:
          UserError: If a file is missing or differs from what the manifest says.
        """
        self._shards, self.record_bytes = manifest.split(split).shards, manifest.record_bytes
        self.paths = [epath.Path(data_dir) / shard.file for shard in self._shards]
        self.starts = np.cumsum([0, *(shard.examples for shard in self._shards)])
        self.offsets = [self._read_offsets(shard, epath.Path(data_dir)) for shard in self._shards]
        if in_bucket(data_dir):
            return
        for path, shard in zip(self.paths, self._shards, strict=True):
            with readable(path):
                size = os.stat(path).st_size
            if size != shard.bytes:
                raise damaged(path, f"has {size:,} bytes, not the manifest's {shard.bytes:,}")

    def _read_offsets(self, shard: Shard, directory: epath.Path) -> np.ndarray:
        if self.record_bytes:
            return np.arange(shard.examples + 1) * self.record_bytes
        return np.frombuffer(whole_file(directory / shard.index, shard.index_crc32c), "<i8")

    def identify(self, shard: int, file: BinaryIO) -> None:
        """Compares the beginning of an open file with what the manifest says: it may have another one's name.

        Raises:
          UserError: If it begins otherwise.
        """
        if crc32c(file.read(HEAD_BYTES)) != self._shards[shard].head_crc32c:
            raise damaged(self.paths[shard], "is not the file that the manifest lists, or is damaged at its start")

    def whole(self, shard: int) -> np.ndarray | list[bytes]:
        """All records of a file in the form of `checked`, after a comparison with the file's own CRC-32C."""
        content = whole_file(self.paths[shard], self._shards[shard].crc32c)
        if self.record_bytes:
            return np.frombuffer(content, np.uint8).reshape(-1, self.record_bytes)
        pairs = itertools.pairwise(self.offsets[shard].tolist())
        return [content[start + HEADER_BYTES : end - FOOTER_BYTES] for start, end in pairs]

    def in_order(self, batch_size: int, start: int, stop: int) -> Iterator[np.ndarray]:
        """The records `start` to `stop` of the split in batches, in the form of `checked`.

        Files are read through once. One of which all records are asked for is compared with its CRC-32C when it ends, and
        of another its beginning with what the manifest says.
        """
        records: list[bytes] = []
        places: list[tuple[int, int]] = []
        for shard, row, last in self._pieces(start, stop):
            path, listed, digest = self.paths[shard], self._shards[shard], google_crc32c.Checksum()
            is_whole = last - row == listed.examples
            with readable(path), path.open("rb") as file:
                if not is_whole:
                    self.identify(shard, file)
                    file.seek(int(self.offsets[shard][row]))
                while row < last:
                    end = min(row + batch_size - len(records), last)
                    bounds = (self.offsets[shard][row : end + 1] - self.offsets[shard][row]).tolist()
                    content = file.read(bounds[-1])
                    if len(content) != bounds[-1]:
                        raise damaged(path, f"ends before byte {self.offsets[shard][end]:,}")
                    digest.update(content)
                    records += [content[a:b] for a, b in itertools.pairwise(bounds)]
                    places += [(shard, i) for i in range(row, end)]
                    row = end
                    if len(records) == batch_size:
                        yield self.checked(records, places)
                        records, places = [], []
                if is_whole:
                    digest.update(file.read(1))  # is there more than it should have?
            if is_whole and digest.hexdigest().decode() != listed.crc32c:
                raise damaged(path)
        if records:
            yield self.checked(records, places)

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """File, first row and end row there of each piece of the records `start` to `stop` of the split."""
        shard = int(np.searchsorted(self.starts, start, side="right")) - 1
        while start < stop:
            end = min(stop, int(self.starts[shard + 1]))
            yield shard, start - int(self.starts[shard]), end - int(self.starts[shard])
            start, shard = end, shard + 1

    def checked(self, records: Sequence[bytes], places: Sequence[tuple[int, int]]) -> np.ndarray:
        """Compares each record, of a file and a row there, with its length and checksums.

        Returns:
          uint8 [N, record_bytes] whole records, or where they differ in length the payloads, objects [N] of bytes.

        Raises:
          UserError: Naming the file of the first that is damaged.
        """
        if self.record_bytes is None:
            rows = np.empty(len(records), object)
            rows[:] = [record[HEADER_BYTES:-FOOTER_BYTES] for record in records]
            bad = next((i for i, record in enumerate(records) if not _is_sound(record)), None)
        else:
            rows = np.frombuffer(b"".join(records), np.uint8).reshape(-1, self.record_bytes)
            bad = _first_bad(rows)
        if bad is not None:
            shard, row = places[bad]
            raise damaged(self.paths[shard], f"is damaged: record {row} does not have its checksum")
        return rows


class MappedRecords:
    """Records of local files by their index. What was read of a file is the system's to drop, not ours to hold."""

    def __init__(self, shards: Shards) -> None:
        """Raises UserError for a file that is not the one that the manifest lists."""
        self._shards = shards
        self._maps = []
        for shard, path in enumerate(shards.paths):
            with readable(path), open(path, "rb") as file:
                shards.identify(shard, file)
                self._maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def take(self, indices: np.ndarray) -> np.ndarray:
        """The records at `indices` [N] of the split, in the form of `Shards.checked`, which raises."""
        files = np.searchsorted(self._shards.starts, indices, side="right") - 1
        places = list(zip(files.tolist(), (indices - self._shards.starts[files]).tolist(), strict=True))
        records = []
        for file, row in places:
            begin, end = self._shards.offsets[file][row : row + 2]
            records.append(self._maps[file][begin:end])
        return self._shards.checked(records, places)


def _first_bad(records: np.ndarray) -> int | None:
    """The first of records [N, size] whose length or checksums are not right."""
    length = np.array([records.shape[1] - HEADER_BYTES - FOOTER_BYTES], "<u8").view(np.uint8)
    header = np.concatenate([length, checksums([length], 1).view(np.uint8)])
    payloads = records[:, HEADER_BYTES:-FOOTER_BYTES]
    footers = records[:, -FOOTER_BYTES:].copy().view("<u4")[:, 0]
    bad = (records[:, :HEADER_BYTES] != header).any(axis=1) | (checksums(payloads, len(records)) != footers)
    return int(bad.argmax()) if bad.any() else None


def _is_sound(record: bytes) -> bool:
    payload = record[HEADER_BYTES:-FOOTER_BYTES]
    length = len(payload).to_bytes(8, "little")
    return record[:HEADER_BYTES] + record[-FOOTER_BYTES:] == length + checksums([length, payload], 2).tobytes()
