"""An output directory that ends as a finished dataset or as it was.

    with claim(output) as existing:
        if not existing:
            notes = begin(output, plan)            # shards are written into the directory, each piece noted when they are there
            note(output, 7, {...})
            publish(output, manifest)

The folder `.converting` is the mark of unfinished work of ours: without it nothing is deleted.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from common.errors import UserError, readable, writable
from common.locks import locked
from common.manifest import FILE, Manifest, Shard
from common.storage.files import (
    crc32c_of,
    delete_files,
    list_files,
    list_folder,
    read_bytes,
    read_json,
    stat_file,
    write_text,
)
from common.storage.storage import is_remote, map_in_threads
from components.convert.engine import ProcessLostError

PAGE, SKIPPED = "dataset.html", "skipped.txt"
WORK = ".converting"
_OURS = re.compile(
    rf"((train|validation|test)-\d{{5,}}\.(tfrecord|hashes|index)|{re.escape(PAGE)}|{re.escape(SKIPPED)})(\.\w+\.tmp)?"
    rf"|{re.escape(FILE)}\.\w+\.tmp|\.converting"
)
_LOCK_WAIT_S = 2.0  # The processes of a conversion that was killed end a moment after it.


@contextlib.contextmanager
def claim(output: str) -> Iterator[Manifest | None]:
    """Keeps others from converting into a directory, where that can be done: not in a bucket.

    Yields the manifest of the dataset there; None if there is nothing, or an unfinished conversion
    of ours. What is not finished is deleted by an error of the user or the system, and stays after
    any other, so that it can go on.

    Raises:
      UserError: If another conversion works there, anything else is there, or the system refuses;
        also for want of memory.
    """
    with writable(f"--output {output}"), contextlib.ExitStack() as stack:
        if not is_remote(output):
            stack.enter_context(_locked_directory(pathlib.Path(output)))
        existing = _load_finished(output)
        try:
            yield existing
        except ProcessLostError:
            raise  # What is done stays.
        except (UserError, OSError):
            discard(output)
            raise
        except MemoryError as error:
            raise UserError("out of memory; convert with fewer --processes") from error


@contextlib.contextmanager
def _locked_directory(directory: pathlib.Path) -> Iterator[None]:
    """Makes a directory and holds its lock; of the folders that were made, those that are empty in the end are removed."""
    deadline = time.monotonic() + _LOCK_WAIT_S

    def refuse() -> None:
        if time.monotonic() > deadline:
            raise UserError(
                f"another conversion is writing to --output {directory}; wait for it to end"
            )

    new_folders = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory, refuse):
            yield
    finally:
        with contextlib.suppress(OSError):
            for path in new_folders:
                path.rmdir()


def _load_finished(output: str) -> Manifest | None:
    folders, files = list_folder(output)
    names = {os.path.basename(path) for path in (*folders, *(file.path for file in files))}
    if FILE in names:
        return Manifest.load(output)
    if foreign := sorted(name for name in names if WORK not in names or not _OURS.fullmatch(name)):
        reason = "whose manifest is gone" if _OURS.fullmatch(foreign[0]) else "which is not ours"
        raise UserError(
            f"--output {output} holds {foreign[0]!r}, {reason}; choose an empty or a new directory"
        )
    return None


def refuse_other(output: str, existing: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    """Raises a `UserError` if anything that is wanted differs from what decided the content of the dataset there."""
    differing = [key for key in wanted if existing.get(key) != wanted[key]]
    if differing:
        shown = [key for key in wanted if key == "dataset" or key in differing]
        old, new = (
            " ".join(f"{key}={str(values.get(key))[:80]}" for key in shown)
            for values in (existing, wanted)
        )
        raise UserError(
            f"--output {output} holds another dataset ({old}; asked for is {new}); choose another "
            "directory or delete it"
        )


def verify(output: str, manifest: Manifest) -> None:
    """Raises a `UserError` if a file of the dataset is missing, or is not what its checksum in the manifest says."""
    if damaged := _damaged(
        output, (shard for split in manifest.splits.values() for shard in split.shards)
    ):
        raise UserError(
            f"{damaged[0]} is missing or damaged; delete the directory and convert again"
        )


def _damaged(output: str, shards: Iterable[Shard]) -> list[str]:
    """Returns the paths of those files of shards that are missing or have another CRC-32C."""
    checksums = {
        f"{output}/{name}": checksum
        for shard in shards
        for name, checksum in shard.checksums.items()
    }

    def is_intact(path: str) -> bool:
        with readable(path), contextlib.suppress(FileNotFoundError):
            return crc32c_of(path) == checksums[path]
        return False

    intact = map_in_threads(is_intact, checksums)
    return [path for path, fits in zip(checksums, intact, strict=True) if not fits]


def begin(output: str, plan: Mapping[str, Any]) -> dict[int, Any]:
    """Begins a conversion, or goes on with one of the same plan; what was begun by another plan is deleted.

    Args:
      output: The dataset's directory.
      plan: What decides the shards, as JSON.

    Returns:
      What was noted of pieces, by number, whose shards are there with the right checksums.
    """
    path, text = f"{output}/{WORK}/plan.json", json.dumps(plan)
    if read_bytes(path) != text.encode():
        discard(output)
        with writable(f"--output {output}"):
            write_text(path, text, durable=False)
    files = [file.path for file in list_folder(f"{output}/{WORK}")[1]]
    paths = {
        int(number[1]): path
        for path in files
        if (number := re.search(r"/piece-(\d+)\.json$", path))
    }
    notes = dict(zip(paths, map_in_threads(_read_note, paths.values()), strict=True))
    return {
        i: note
        for i, note in notes.items()
        if note and not _damaged(output, (Shard(**shard) for shard in note["shards"].values()))
    }


def note(output: str, number: int, content: Mapping[str, Any]) -> None:
    """Notes that a piece is done."""
    write_text(f"{output}/{WORK}/piece-{number:05d}.json", json.dumps(content), durable=False)


def _read_note(path: str) -> Any:
    with contextlib.suppress(ValueError):  # It is cut, as after a loss of power.
        return read_json(path)


def require_room(output: str, num_bytes: int) -> None:
    """Raises a `UserError` if what is still to be written, about, is more than the disk has free."""
    free = shutil.disk_usage(output).free
    if num_bytes > free:
        raise UserError(
            f"--output {output}: needs about {num_bytes:,} bytes more, and its disk has {free:,} "
            "free"
        )


def publish(output: str, manifest: Manifest) -> None:
    """Saves the manifest of a dataset whose files are there: after this it exists."""
    if is_remote(output):
        verify(output, manifest)  # Nothing keeps others from deleting them there.
    if_version = "" if is_remote(output) else None  # What others have made meanwhile stays.
    write_text(f"{output}/{FILE}", manifest.dump(), if_version=if_version)
    tidy(output)


def tidy(output: str) -> None:
    """Deletes what a finished dataset does not need any more."""
    _delete(output, ".tmp")


def discard(output: str) -> None:
    """Deletes the files of an unfinished conversion; of a dataset nothing."""
    if not stat_file(f"{output}/{FILE}"):
        delete_files([f"{output}/{WORK}/plan.json"])  # So that nobody goes on with a half of it.
        _delete(output, "")


def _delete(output: str, suffix: str) -> None:
    """Deletes all that was noted of work, and our files whose names end with a suffix."""
    paths = [file.path for file in list_folder(output)[1]]
    delete_files(
        path for path in paths if path.endswith(suffix) and _OURS.fullmatch(os.path.basename(path))
    )
    if is_remote(output):
        delete_files(file.path for file in list_files(f"{output}/{WORK}"))
    else:
        shutil.rmtree(f"{output}/{WORK}", ignore_errors=True)
