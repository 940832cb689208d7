"""An output directory that ends as a finished dataset or as it was.

    with claim(output):
        if finished(output) is None:
            ...                                  # makes the files, and in `work(output)` what is not finished
            publish(output, manifest)

Unfinished files lie in `.converting`, which doubles as the mark of our own leftovers: without it nothing is deleted.
"""

import contextlib
import os
import pathlib
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping

from common.errors import UserError, readable, writable
from common.locks import locked
from common.manifest import FILE, Manifest
from common.storage.files import crc32c_of, delete_files, list_files, list_folder, write_text
from common.storage.storage import is_remote
from components.convert.writing.notes import Notes

PAGE, SKIPPED = "dataset.html", "skipped.txt"
_WORK = ".converting"
_OURS = re.compile(
    rf"(\w+-\d{{5,}}-of-\d{{5,}}\.(tfrecord|hashes|index)|{re.escape(PAGE)}|{re.escape(SKIPPED)})(\.\w+\.tmp)?"
    rf"|{re.escape(FILE)}\.\w+\.tmp|\.converting"
)
_LOCK_WAIT_S = 2.0  # the processes of a conversion that was killed end a moment after it


@contextlib.contextmanager
def claim(output: str) -> Iterator[None]:
    """Makes the directory and keeps others from converting into it, where that can be done: not in a bucket.

    A failure removes what was made. Want of memory, and what the operating system refuses, are user errors.
    """
    if is_remote(output):
        yield
        return
    made, directory = [], pathlib.Path(output)
    deadline = time.monotonic() + _LOCK_WAIT_S

    def refuse() -> None:
        if time.monotonic() > deadline:
            raise UserError(f"another conversion is writing to --output {output}; wait for it to end")

    try:
        with writable(f"--output {output}"):
            made += [path for path in (directory, *directory.parents) if not path.exists()]
            directory.mkdir(parents=True, exist_ok=True)
            with locked(directory, refuse):
                yield
    except BaseException as error:
        with contextlib.suppress(OSError):
            for path in made:
                path.rmdir()
        if isinstance(error, MemoryError):
            raise UserError("out of memory; convert with fewer --processes") from error
        raise


def require_room(output: str, num_bytes: int) -> None:
    """Refuses to go on if what is still to be written, about, is more than the disk has free."""
    if num_bytes > (free := shutil.disk_usage(output).free):
        raise UserError(f"--output {output}: needs about {num_bytes:,} bytes more, and its disk has {free:,} free")


def finished(output: str) -> Manifest | None:
    """The manifest of the dataset there; None if there is nothing, or an unfinished conversion of ours.

    Anything else is refused.
    """
    folders, files = list_folder(output)
    names = {os.path.basename(path) for path in (*folders, *(file.path for file in files))}
    if FILE in names:
        return Manifest.load(output)
    if foreign := sorted(name for name in names if _WORK not in names or not _OURS.fullmatch(name)):
        raise UserError(
            f"--output {output} holds {foreign[0]!r}, which is not ours; choose an empty or a new directory"
        )
    return None


def is_own(name: str) -> bool:
    """Returns whether a conversion wrote the file of an output directory that has this path there."""
    return name == FILE or name.startswith(f"{_WORK}/") or bool(_OURS.fullmatch(name))


def refuse_other(output: str, held: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    """Refuses to go on if anything that is asked for is not what decided the content of what is there."""
    differing = [key for key in wanted if held.get(key) != wanted[key]]
    if differing:
        told = [key for key in wanted if key == "dataset" or key in differing]
        old, new = (" ".join(f"{key}={str(values.get(key))[:80]}" for key in told) for values in (held, wanted))
        raise UserError(
            f"--output {output} holds another dataset ({old}; asked for is {new}); choose another directory or delete it"
        )


def verify(output: str, manifest: Manifest) -> None:
    """Refuses a dataset of which a file is missing, or is not what its checksum in the manifest says."""
    there = {os.path.basename(file.path): file for file in list_folder(output)[1]}
    for name, crc32c in (item for split in manifest.splits.values() for item in split.checksums.items()):
        path = f"{output}/{name}"
        with readable(path):
            # A store knows the checksum.
            intact = name in there and (there[name].crc32c or crc32c_of(path)) == crc32c
        if not intact:
            raise UserError(f"{path} is missing or damaged; delete the directory and convert again")


def work(output: str) -> str:
    """Where unfinished work lies."""
    return f"{output}/{_WORK}"


def publish(output: str, manifest: Manifest) -> None:
    """Saves the manifest of a dataset whose files are there: after this it exists."""
    if is_remote(output):
        verify(output, manifest)  # where nothing keeps others from deleting them
    write_text(
        f"{output}/{FILE}", manifest.dump(), if_version="" if is_remote(output) else None
    )  # what others have made meanwhile stays
    tidy(output)


def tidy(output: str) -> None:
    """Deletes what a finished dataset does not need any more."""
    _delete(output, _there(output, lambda name: name == _WORK or name.endswith(".tmp")))


def discard(output: str) -> None:
    """Deletes the files of an unfinished conversion; of a dataset nothing."""
    files = _there(output, is_own)
    if f"{output}/{FILE}" not in files:
        delete_files({Notes(work(output)).path("plan")}.intersection(files))  # so that nobody goes on with a half of it
        _delete(output, files)


def _there(output: str, ours: Callable[[str], bool]) -> list[str]:
    """The files of such names, and those in folders of such names."""
    folders, files = list_folder(output)
    found = [file.path for file in files if ours(os.path.basename(file.path))]
    inner = [folder for folder in folders if ours(os.path.basename(folder))]
    return found + [file.path for folder in inner for file in list_files(folder, follow_links=False)]


def _delete(output: str, files: Collection[str]) -> None:
    delete_files(files)
    if not is_remote(output):
        shutil.rmtree(work(output), ignore_errors=True)
