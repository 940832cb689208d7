"""Parts of shards: what one piece of a source gives to one shard, and how parts become a shard.

    part = Writer(place / "00003-train-00001", layout)
    part.append({"image": images, "label": labels})
    written = part.close()
    shard = join(place, [("00003-train-00001", written), ...], target / "train-00001-of-00008")

Beside the records lie the content hash of each (`.hashes`, little-endian uint64) and, where records differ in length, where
each of them ends in the part (`.index`, little-endian int64). A shard is its parts one after another, so its checksums
follow from theirs.
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from components.convert.writing.checksums import combined
from components.convert.writing.content_hashes import content_hashes
from components.convert.writing.tfrecord import Column, Layout, Summed, hashed, taken
from trainer.base.files import crc32c, crc32c_of
from trainer.base.manifest import HEAD_BYTES, Shard

_SUFFIXES = (".tfrecord", ".hashes", ".index")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A part that is written; the checksums are CRC-32C."""

    examples: int
    num_bytes: int
    crc32c: int
    hashes_crc32c: int


class Writer:
    """Writes a part to files of a name and suffixes of ours; without a name what would be written is only looked at."""

    def __init__(self, name: pathlib.Path | None, layout: Layout):
        self._layout, self._examples, self._files = layout, 0, []
        for suffix in _SUFFIXES:
            used = name is not None and (suffix != _SUFFIXES[2] or layout.record_bytes is None)
            self._files.append(Summed(open(f"{name}{suffix}" if used else os.devnull, "wb")))  # noqa: SIM115 (closed below)
        self._records, self._hashes, self._ends = self._files

    def append(self, columns: Mapping[str, Column]) -> None:
        """Appends examples, whose values are given by field."""
        for rows in self._layout.chunks(columns, np.arange(len(next(iter(columns.values()))))):
            values = {name: taken(column, rows) for name, column in columns.items()}
            encoded, ends = self._layout.encode(values)
            self._hashes.write(content_hashes(len(rows), hashed(values, self._layout, encoded)).astype("<u8"))
            if self._layout.record_bytes is None:
                self._ends.write((self._records.bytes + ends).astype("<i8", copy=False))
            self._records.write(encoded)
            self._examples += len(rows)

    def close(self) -> Part:
        """Ends the part: it is on the disk then."""
        for summed in self._files:
            with summed.file as file:
                file.flush()
                if file.name != os.devnull:
                    os.fsync(file.fileno())
        return Part(
            examples=self._examples,
            num_bytes=self._records.bytes,
            crc32c=int(self._records.crc32c.hexdigest(), 16),
            hashes_crc32c=int(self._hashes.crc32c.hexdigest(), 16),
        )

    def abandon(self) -> None:
        """Closes the files."""
        for summed in self._files:
            summed.file.close()


def join(parts: Sequence[tuple[pathlib.Path, Part]], target: pathlib.Path, *, indexed: bool) -> Shard:
    """Makes a shard's files of its parts, which are deleted then, and tells what the manifest says of it.

    Done again after it was interrupted, it goes on.
    """
    names, written = zip(*parts, strict=True)
    examples, num_bytes = sum(part.examples for part in written), sum(part.num_bytes for part in written)
    for suffix, due in zip(_SUFFIXES, (num_bytes, 8 * examples, 8 * (examples + 1)), strict=True):
        made, pieces = target.with_suffix(suffix), [name.with_name(name.name + suffix) for name in names]
        if suffix == _SUFFIXES[2] and not indexed:
            continue
        if not (made.exists() and made.stat().st_size == due):
            contents = _starts(pieces, written) if suffix == _SUFFIXES[2] else pieces
            _write(contents, made)
        for path in pieces:
            path.unlink(missing_ok=True)
    return shard_of(written, target, indexed=indexed)


def shard_of(parts: Sequence[Part], target: pathlib.Path, *, indexed: bool) -> Shard:
    """What the manifest says of a shard of such parts, the files of which are there."""
    records, hashes, index = 0, 0, target.with_suffix(".index")
    for part in parts:
        records = combined(records, part.crc32c, part.num_bytes)
        hashes = combined(hashes, part.hashes_crc32c, 8 * part.examples)
    head = ""  # of a shard that is not there, and so not what it should be
    with contextlib.suppress(FileNotFoundError), open(target.with_suffix(".tfrecord"), "rb") as file:
        head = crc32c(file.read(HEAD_BYTES))
    return Shard(
        file=f"{target.name}.tfrecord",
        examples=sum(part.examples for part in parts),
        bytes=sum(part.num_bytes for part in parts),
        crc32c=f"{records:08x}",
        head_crc32c=head,
        hashes=f"{target.name}.hashes",
        hashes_crc32c=f"{hashes:08x}",
        index=f"{target.name}.index" if indexed else None,
        index_crc32c=crc32c_of(index) if indexed and index.exists() else None,
    )


def _starts(paths: Sequence[pathlib.Path], parts: Sequence[Part]) -> Iterator[np.ndarray]:
    """Where the records of a shard start, and where the last one ends, of where they end in each part."""
    before = 0
    yield np.zeros(1, "<i8")
    for path, part in zip(paths, parts, strict=True):
        yield np.fromfile(path, "<i8") + before
        before += part.num_bytes


def _write(contents: Iterable[pathlib.Path | np.ndarray], target: pathlib.Path) -> None:
    """Writes arrays, or what is in files, one after another to a file that appears when it is whole."""
    contents, temporary = list(contents), target.with_name(f"{target.name}.tmp")
    if len(contents) == 1 and isinstance(contents[0], pathlib.Path):
        contents[0].replace(target)
        return
    with open(temporary, "wb") as file:
        for content in contents:
            if isinstance(content, pathlib.Path):
                with open(content, "rb") as part:
                    shutil.copyfileobj(part, file, 1 << 20)
            else:
                file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(target)
