"""An output directory that ends as a finished dataset or as it was.

    with claim(output):
        if load_finished(output) is None:
            work = Work.of(output, plan)            # shards are written into the directory, each noted when it is there
            work.note(7, {...})
            publish(output, manifest)

The folder `.converting` is the mark of unfinished work of ours: without it nothing is deleted.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Self

from common.errors import UserError, readable, writable
from common.locks import locked
from common.manifest import FILE, Manifest, Shard
from common.storage.files import (
    crc32c_of,
    delete_files,
    list_files,
    list_folder,
    read_json,
    write_text,
)
from common.storage.storage import is_remote, map_in_threads

PAGE, SKIPPED = "dataset.html", "skipped.txt"
WORK = ".converting"
_OURS = re.compile(
    rf"((train|validation|test)-\d{{5,}}\.(tfrecord|hashes|index)|{re.escape(PAGE)}|{re.escape(SKIPPED)})(\.\w+\.tmp)?"
    rf"|{re.escape(FILE)}\.\w+\.tmp|\.converting"
)
_LOCK_WAIT_S = 2.0  # The processes of a conversion that was killed end a moment after it.


@contextlib.contextmanager
def claim(output: str) -> Iterator[None]:
    """Makes the directory and keeps others from converting into it, where that can be done: not in a bucket.

    A failure removes the folders that were made.

    Raises:
      UserError: If another conversion works there, or the system refuses; also for want of memory.
    """
    if is_remote(output):
        yield
        return
    directory = pathlib.Path(output)
    new_folders = []
    deadline = time.monotonic() + _LOCK_WAIT_S

    def refuse() -> None:
        if time.monotonic() > deadline:
            raise UserError(f"another conversion is writing to --output {output}; wait for it to end")

    try:
        with writable(f"--output {output}"):
            new_folders += [path for path in (directory, *directory.parents) if not path.exists()]
            directory.mkdir(parents=True, exist_ok=True)
            with locked(directory, refuse):
                yield
    except BaseException as error:
        with contextlib.suppress(OSError):
            for path in new_folders:
                path.rmdir()
        if isinstance(error, MemoryError):
            raise UserError("out of memory; convert with fewer --processes") from error
        raise


def load_finished(output: str) -> Manifest | None:
    """Returns the manifest of the dataset there; None if there is nothing, or an unfinished conversion of ours.

    Raises:
      UserError: If anything else is there.
    """
    folders, files = list_folder(output)
    names = {os.path.basename(path) for path in (*folders, *(file.path for file in files))}
    if FILE in names:
        return Manifest.load(output)
    if foreign := sorted(name for name in names if WORK not in names or not _OURS.fullmatch(name)):
        reason = "whose manifest is gone" if _OURS.fullmatch(foreign[0]) else "which is not ours"
        raise UserError(f"--output {output} holds {foreign[0]!r}, {reason}; choose an empty or a new directory")
    return None


def refuse_other(output: str, existing: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    """Raises a `UserError` if anything that is wanted differs from what decided the content of the dataset there."""
    differing = [key for key in wanted if existing.get(key) != wanted[key]]
    if differing:
        shown = [key for key in wanted if key == "dataset" or key in differing]
        old, new = (" ".join(f"{key}={str(values.get(key))[:80]}" for key in shown) for values in (existing, wanted))
        raise UserError(
            f"--output {output} holds another dataset ({old}; asked for is {new}); choose another directory or delete it"
        )


def verify(output: str, manifest: Manifest) -> None:
    """Raises a `UserError` if a file of the dataset is missing, or is not what its checksum in the manifest says."""
    checksums = [item for split in manifest.splits.values() for item in split.checksums.items()]
    if damaged := _damaged(output, checksums):
        raise UserError(f"{damaged[0]} is missing or damaged; delete the directory and convert again")


def _damaged(output: str, checksums: Collection[tuple[str, str]]) -> list[str]:
    """Returns the paths of those files that are missing or have another CRC-32C."""

    def is_intact(item: tuple[str, str]) -> bool:
        with readable(output), contextlib.suppress(FileNotFoundError):
            return crc32c_of(f"{output}/{item[0]}") == item[1]
        return False

    intact = map_in_threads(is_intact, checksums)
    return [f"{output}/{name}" for (name, _), fits in zip(checksums, intact, strict=True) if not fits]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """Unfinished work on a dataset: a note for each piece that is done.

    Attributes:
      output: The dataset's directory.
    """

    output: str

    @classmethod
    def of(cls, output: str, plan: Mapping[str, Any]) -> Self:
        """Returns the work in a directory; what was begun by another plan, which is JSON, is deleted."""
        work = cls(output=output)
        plan = json.loads(json.dumps(plan))
        if work._read("plan") != plan:
            discard(output)
            work._write("plan", plan)
        return work

    @property
    def folder(self) -> str:
        """Folder of what is deleted when the dataset is finished."""
        return f"{self.output}/{WORK}"

    def load_notes(self) -> dict[int, Any]:
        """Returns what was noted of pieces, by number, whose shards are there with the right checksums."""
        names = [os.path.basename(file.path) for file in list_folder(self.folder)[1]]
        numbers = [int(name[6:11]) for name in names if re.fullmatch(r"piece-\d{5}\.json", name)]
        notes = dict(zip(numbers, map_in_threads(lambda i: self._read(_name(i)), numbers), strict=True))
        return {i: note for i, note in notes.items() if note and not _damaged(self.output, _checksums(note))}

    def note(self, number: int, content: Mapping[str, Any]) -> Any:
        """Notes that a piece is done; returns the content as it will be read."""
        return self._write(_name(number), content)

    def _read(self, name: str) -> Any:
        """Returns a note; None if there is none, or a cut one, as after a loss of power."""
        with contextlib.suppress(ValueError):
            return read_json(f"{self.folder}/{name}.json")

    def _write(self, name: str, content: Any) -> Any:
        text = json.dumps(content)
        with writable(f"--output {self.output}"):
            write_text(f"{self.folder}/{name}.json", text, durable=False)
        return json.loads(text)


def _name(number: int) -> str:
    return f"piece-{number:05d}"


def _checksums(note: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [item for shard in note["shards"].values() for item in Shard(**shard).checksums.items()]


def require_room(output: str, num_bytes: int) -> None:
    """Raises a `UserError` if what is still to be written, about, is more than the disk has free."""
    free = shutil.disk_usage(output).free
    if num_bytes > free:
        raise UserError(f"--output {output}: needs about {num_bytes:,} bytes more, and its disk has {free:,} free")


def publish(output: str, manifest: Manifest) -> None:
    """Saves the manifest of a dataset whose files are there: after this it exists."""
    if is_remote(output):
        verify(output, manifest)  # Nothing keeps others from deleting them there.
    if_version = "" if is_remote(output) else None  # What others have made meanwhile stays.
    write_text(f"{output}/{FILE}", manifest.dump(), if_version=if_version)
    tidy(output)


def tidy(output: str) -> None:
    """Deletes what a finished dataset does not need any more."""
    _delete(output, [path for path in _own_files(output) if f"/{WORK}/" in path or path.endswith(".tmp")])


def discard(output: str) -> None:
    """Deletes the files of an unfinished conversion; of a dataset nothing."""
    files = _own_files(output)
    if f"{output}/{FILE}" not in files:
        delete_files({f"{output}/{WORK}/plan.json"}.intersection(files))  # So that nobody goes on with a half of it.
        _delete(output, files)


def _own_files(output: str) -> list[str]:
    folders, files = list_folder(output)
    names = {file.path: os.path.basename(file.path) for file in files}
    own = [path for path, name in names.items() if name == FILE or _OURS.fullmatch(name)]
    work = [folder for folder in folders if os.path.basename(folder) == WORK]
    return own + [file.path for folder in work for file in list_files(folder, follow_links=False)]


def _delete(output: str, files: Collection[str]) -> None:
    delete_files(files)
    if not is_remote(output):
        shutil.rmtree(f"{output}/{WORK}", ignore_errors=True)
