"""Parts of shards: what one piece of a source gives to one shard, and how parts become a shard.

    part = Writer(place / "00003-train-00001", layout)
    part.append({"image": images, "label": labels})
    written = part.close()
    shard = join(place, [("00003-train-00001", written), ...], target / "train-00001-of-00008")

Beside the records lie the content hash of each (`.hashes`, little-endian uint64) and, where records differ in length, where
each of them ends in the part (`.index`, little-endian int64). A shard is its parts one after another, so its checksums
follow from theirs.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import google_crc32c
import numpy as np

from common.manifest import HEAD_BYTES, Shard
from common.storage.files import crc32c, delete_files, open_file, read_bytes, stat_file
from common.storage.storage import File, FileChanged, storage_of
from components.convert.writing.checksums import combined
from components.convert.writing.content_hashes import content_hashes
from components.convert.writing.tfrecord import Column, Layout, hashed, taken

RECORDS, HASHES, INDEX = ".tfrecord", ".hashes", ".index"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A part that is written; the checksums are CRC-32C, 8 hexadecimal digits."""

    examples: int
    num_bytes: int
    crc32c: str
    hashes_crc32c: str

    def file(self, name: str, suffix: str) -> File:
        """One of its files, given their name without a suffix."""
        sizes = {RECORDS: self.num_bytes, HASHES: 8 * self.examples, INDEX: 8 * self.examples}
        checksums = {RECORDS: self.crc32c, HASHES: self.hashes_crc32c}
        return File(path=f"{name}{suffix}", num_bytes=sizes[suffix], crc32c=checksums.get(suffix, ""))


class Writer:
    """Writes a part, of `num_bytes` so far, to files of a name and suffixes of ours; without a name it is only looked at."""

    def __init__(self, name: str | None, layout: Layout):
        self._layout, self._examples, self.num_bytes = layout, 0, 0
        suffixes = (RECORDS, HASHES) if layout.record_bytes else (RECORDS, HASHES, INDEX)
        # A shard is on the disk when its parts are joined: thousands of them need not be, one by one.
        self._files = {
            suffix: storage_of(name).create(f"{name}{suffix}", durable=False) if name else _Nothing()
            for suffix in suffixes
        }

    def append(self, columns: Mapping[str, Column]) -> None:
        """Appends examples, whose values are given by field."""
        for rows in self._layout.chunks(columns, np.arange(len(next(iter(columns.values()))))):
            values = {name: taken(column, rows) for name, column in columns.items()}
            encoded, ends = self._layout.encode(values)
            hashes = content_hashes(len(rows), hashed(values, self._layout, encoded))
            self._files[HASHES].write(hashes.astype("<u8"))
            if INDEX in self._files:
                self._files[INDEX].write((self.num_bytes + ends).astype("<i8", copy=False))
            self._files[RECORDS].write(encoded)
            self._examples += len(rows)
            self.num_bytes += encoded.nbytes

    def close(self) -> Part:
        """Ends the part: its files are there then, whole."""
        made = {suffix: file.close() for suffix, file in self._files.items()}
        return Part(
            examples=self._examples,
            num_bytes=self.num_bytes,
            crc32c=made[RECORDS].crc32c,
            hashes_crc32c=made[HASHES].crc32c,
        )

    def abandon(self) -> None:
        """Forgets what was not closed."""
        for file in self._files.values():
            file.abandon()


class _Nothing:
    """Takes the place of a file that is not written."""

    def __init__(self) -> None:
        self._checksum = google_crc32c.Checksum()

    def write(self, content: Any) -> None:
        self._checksum.update(content)

    def close(self) -> File:
        return File(path="", num_bytes=0, crc32c=self._checksum.hexdigest().decode())

    def abandon(self) -> None:
        pass


def join(parts: Sequence[tuple[str, Part]], target: str, *, indexed: bool) -> Shard:
    """Makes a shard's files of its parts, given their names, and tells what the manifest says of it.

    The parts are deleted. Done again after it was interrupted, it goes on.
    """
    examples, num_bytes = sum(part.examples for _, part in parts), sum(part.num_bytes for _, part in parts)
    sizes = {RECORDS: num_bytes, HASHES: 8 * examples, **({INDEX: 8 * (examples + 1)} if indexed else {})}
    for suffix, due in sizes.items():
        existing, files = stat_file(target + suffix), [part.file(name, suffix) for name, part in parts]
        if not existing or existing.num_bytes != due:
            (_join_indexes if suffix == INDEX else storage_of(target).join)(files, target + suffix)
        delete_files(file.path for file in files)
    return shard_of([part for _, part in parts], target, indexed=indexed)


def shard_of(parts: Sequence[Part], target: str, *, indexed: bool) -> Shard:
    """What the manifest says of a shard of such parts at the target; of files that are not there, no checksums."""
    records = hashes = 0
    for part in parts:
        records = combined(records, int(part.crc32c, 16), part.num_bytes)
        hashes = combined(hashes, int(part.hashes_crc32c, 16), 8 * part.examples)
    name = target.rpartition("/")[2]
    return Shard(
        file=f"{name}{RECORDS}",
        examples=sum(part.examples for part in parts),
        bytes=sum(part.num_bytes for part in parts),
        crc32c=f"{records:08x}",
        head_crc32c=_checksum(target + RECORDS, HEAD_BYTES),
        hashes=f"{name}{HASHES}",
        hashes_crc32c=f"{hashes:08x}",
        index=f"{name}{INDEX}" if indexed else None,
        index_crc32c=_checksum(target + INDEX) if indexed else None,
    )


def _checksum(path: str, num_bytes: int = -1) -> str:
    """Of a file, or of its beginning; empty if it is not there."""
    if not (file := stat_file(path)):
        return ""
    if num_bytes < 0 and file.crc32c:
        return file.crc32c  # which the store knows
    with open_file(file, stop=None if num_bytes < 0 else num_bytes) as content:
        return crc32c(content.read(num_bytes))


def _join_indexes(files: Sequence[File], target: str) -> None:
    """Writes where the records of a shard start, and where the last one ends, of where they end in each part."""
    before = np.int64(0)
    with storage_of(target).create(target) as index:
        index.write(np.zeros(1, "<i8"))
        for file in files:
            if (ends := read_bytes(file.path)) is None:
                raise FileChanged(file.path)
            index.write(starts := np.frombuffer(ends, "<i8") + before)
            before = starts[-1]
