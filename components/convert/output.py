"""Output directory that ends as a finished dataset, or as it was before.

    with claim(output) as existing:
        if not existing:
            notes = begin(output, plan)
            # Shards are written into the directory. Each piece is noted when its shards are there.
            note(output, 7, {...})
            publish(output, manifest, plan)

The folder `.converting` marks an unfinished conversion. A directory that has other files, and no
such folder, is refused, and nothing in it is deleted.
"""

import contextlib
import functools
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
    flush,
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
PLAN = "plan.sha256"  # Lies in `WORK` too while the conversion is unfinished.
WORK = ".converting"
# Names of what a conversion writes into the output directory before the manifest.
_OURS = re.compile(
    r"((train|validation|test)-\d{5,}\.(tfrecord|hashes|index)"
    rf"|{re.escape(PAGE)}|{re.escape(SKIPPED)}|{re.escape(PLAN)})(\.\w+\.tmp)?"
    rf"|{re.escape(FILE)}\.\w+\.tmp|\.converting"
)
# The processes of a conversion that was killed end a moment after it, and hold its lock until then.
_LOCK_WAIT_S = 2.0


@contextlib.contextmanager
def claim(output: str) -> Iterator[Manifest | None]:
    """Prepares a directory for a conversion, and cleans it up if the conversion fails.

    A local directory is made, and stays locked until the block ends. A bucket has no locks.

    If the block raises a `UserError` or an `OSError`, unfinished work is deleted. After a
    `ProcessLostError` or any other exception it stays, and the next conversion continues it. A
    finished dataset always stays.

    Args:
      output: Local path or `gs://` address of the directory.

    Yields:
      The manifest of the dataset in the directory; None if the directory is empty, or has an
      unfinished conversion.

    Raises:
      UserError: If another conversion writes there, if the directory holds anything else, in place
        of an `OSError`, or of a `MemoryError` in the block.
      ConnectionError: If a store does not answer.
    """
    with writable(f"--output {output}"), contextlib.ExitStack() as stack:
        if not is_remote(output):
            stack.enter_context(_locked_directory(pathlib.Path(output)))
        existing = _load_finished(output)
        try:
            yield existing
        except ProcessLostError:
            raise  # Finished pieces stay, for the next conversion.
        except (UserError, OSError):
            discard(output)
            raise
        except MemoryError as error:
            raise UserError("out of memory; convert with fewer --processes") from error


@contextlib.contextmanager
def _locked_directory(directory: pathlib.Path) -> Iterator[None]:
    """Makes a directory, and holds its lock; in the end removes the new folders that are empty.

    Raises:
      UserError: If another process holds the lock for more than 2 seconds.
      OSError: If the directory cannot be made or opened.
    """
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
    # Files are known by their names only if the directory has the mark of an unfinished conversion.
    if foreign := sorted(name for name in names if WORK not in names or not _OURS.fullmatch(name)):
        reason = "whose manifest is gone" if _OURS.fullmatch(foreign[0]) else "which is not ours"
        raise UserError(
            f"--output {output} holds {foreign[0]!r}, {reason}; choose an empty or a new directory"
        )
    return None


def require_same(
    output: str, manifest: Manifest, plan: str, arguments: Mapping[str, object]
) -> None:
    """Checks that an existing dataset was made by the wanted plan, as its `plan.sha256` says.

    A dataset without that file counts as made by another plan.

    Args:
      output: Directory of the dataset.
      manifest: Manifest of the dataset, for the message.
      plan: Digest of all that decides the content of the wanted dataset.
      arguments: Options that are part of the plan, for the message.

    Raises:
      UserError: If it was made by another plan.
      ConnectionError: If a store does not answer.
    """
    if read_bytes(f"{output}/{PLAN}") == plan.encode():
        return
    # The manifest also has the content of the schema.
    differing = [
        name
        for name in {**manifest.arguments, **arguments}
        if name != "schema" and manifest.arguments.get(name) != arguments.get(name)
    ]
    what = ", ".join(differing) or "source or schema"
    raise UserError(
        f"--output {output} holds a dataset made with another {what}; choose another directory or "
        "delete it"
    )


def verify(output: str, manifest: Manifest) -> None:
    """Checks that all files of a dataset have the CRC-32C that the manifest says.

    Args:
      output: Directory of the dataset.
      manifest: Manifest of the dataset.

    Raises:
      UserError: If a file is missing, damaged, or cannot be read.
      ConnectionError: If a store does not answer.
    """
    for path in map_in_threads(functools.partial(_find_damage, output), manifest.shards):
        if path:
            raise UserError(f"{path} is missing or damaged; delete the directory and convert again")


def _find_damage(output: str, shard: Shard) -> str | None:
    """Returns the path of a shard's file that is missing or has another CRC-32C; None if none is.

    Raises:
      UserError: If a file is there and cannot be read.
    """
    for name, checksum in shard.checksums.items():
        path = f"{output}/{name}"
        with readable(path), contextlib.suppress(FileNotFoundError):
            if crc32c_of(path) == checksum:
                continue
        return path
    return None


def begin(output: str, plan: str) -> dict[int, Any]:
    """Begins a conversion, or continues an unfinished one that has the same plan.

    The files of an unfinished conversion with another plan are deleted.

    Args:
      output: Directory of the dataset.
      plan: Digest of all that decides the content of the dataset.

    Returns:
      Notes of the finished pieces, by number. A piece whose shards are missing or damaged is
      not finished.

    Raises:
      UserError: If the plan cannot be written.
      OSError: If the folder `.converting` cannot be read.
    """
    path = f"{output}/{WORK}/{PLAN}"
    if read_bytes(path) != plan.encode():
        discard(output)
        with writable(f"--output {output}"):
            write_text(path, plan, durable=False)
    paths = {
        int(number[1]): file.path
        for file in list_folder(f"{output}/{WORK}")[1]
        if (number := re.search(r"/piece-(\d+)\.json$", file.path))
    }
    notes = map_in_threads(functools.partial(_read_note, output), paths.values())
    return {number: note for number, note in zip(paths, notes, strict=True) if note}


def _read_note(output: str, path: str) -> Any:
    """Returns the note of a finished piece; None if it or one of the shards cannot be used."""
    # A note may be cut off after a loss of power.
    with contextlib.suppress(ValueError):
        note = read_json(path)
        if note and not any(_find_damage(output, Shard(**part["shard"])) for part in note.values()):
            return note
    return None


def note(output: str, number: int, content: Mapping[str, Any]) -> None:
    """Notes that a piece is finished, in `.converting/piece-<number>.json`.

    Args:
      output: Directory of the dataset.
      number: Position of the piece in the source.
      content: Note that `begin` is to return, as JSON: by split, `shard` has the manifest's entry
        of the piece's shard.

    Raises:
      OSError: If the note cannot be written.
    """
    write_text(f"{output}/{WORK}/piece-{number:05d}.json", json.dumps(content), durable=False)


def require_room(output: str, num_bytes: int) -> None:
    """Checks that the output's disk has room for the rest of a conversion.

    Args:
      output: Local directory of the dataset, which exists.
      num_bytes: Approximate number of bytes that are still to be written.

    Raises:
      UserError: If the disk has fewer bytes free.
    """
    free = shutil.disk_usage(output).free
    if num_bytes > free:
        raise UserError(
            f"--output {output}: needs about {num_bytes:,} bytes more, and its disk has {free:,} "
            "free"
        )


def flush_shards(output: str, shards: Iterable[Shard]) -> None:
    """Waits until the files of shards survive a loss of power.

    Args:
      output: Local directory of the dataset.
      shards: Shards that are written.

    Raises:
      OSError: If a file is missing, or cannot be written to the disk.
    """
    for shard in shards:
        for name in shard.checksums:
            flush(f"{output}/{name}")


def publish(output: str, manifest: Manifest, plan: str) -> None:
    """Writes `plan.sha256` and `manifest.json`, which make the files a dataset; tidies up.

    Args:
      output: Directory of the dataset; all other files are there already.
      manifest: Manifest of the dataset.
      plan: Digest of all that decided the content, as `begin` takes it.

    Raises:
      UserError: If a file of the dataset in a bucket is missing or damaged.
      FileExistsError: If a bucket has another plan or manifest there by now.
      OSError: If a local file is missing or cannot be written, or a store does not answer.
    """
    if is_remote(output):
        # A bucket has no locks, so another conversion may have deleted or replaced a file.
        verify(output, manifest)
    else:
        flush_shards(output, manifest.shards)
    # For the same reason, a manifest that another conversion has written meanwhile is kept.
    if_version = "" if is_remote(output) else None
    write_text(f"{output}/{PLAN}", plan, if_version=if_version)
    write_text(f"{output}/{FILE}", manifest.dump(), if_version=if_version)
    tidy(output)


def tidy(output: str) -> None:
    """Deletes the temporary files and the notes of a finished dataset.

    Raises:
      UserError: If a store refuses a request.
      OSError: If a file cannot be deleted, or a store does not answer.
    """
    _delete(output, ".tmp")


def discard(output: str) -> None:
    """Deletes the files of an unfinished conversion; does nothing to a finished dataset.

    Raises:
      UserError: If a store refuses a request.
      OSError: If a file cannot be deleted, or a store does not answer.
    """
    if not stat_file(f"{output}/{FILE}"):
        # Without a plan, no conversion continues what is left if the deletion below is interrupted.
        delete_files([f"{output}/{WORK}/{PLAN}"])
        _delete(output, "")


def _delete(output: str, suffix: str) -> None:
    """Deletes `.converting`, which has the plan and the notes, and files of a conversion.

    Args:
      output: Directory of the dataset.
      suffix: End of the names of the files to delete. Of the files directly in the directory, only
        those go whose names a conversion gives: shards, page and list of skipped rows, and
        temporary files. The manifest stays.
    """
    paths = [file.path for file in list_folder(output)[1]]
    delete_files(
        path for path in paths if path.endswith(suffix) and _OURS.fullmatch(os.path.basename(path))
    )
    if is_remote(output):
        delete_files(file.path for file in list_files(f"{output}/{WORK}"))
    else:
        shutil.rmtree(f"{output}/{WORK}", ignore_errors=True)
