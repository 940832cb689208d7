"""An output directory that ends as a finished dataset or as it was.

    with claim(output):
        if finished(output) is None:
            build(output, write_shards)

Unfinished files lie in `.converting`, which doubles as the mark of our own leftovers: without it nothing is deleted.
"""

import contextlib
import pathlib
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping

from components.convert.writing.workers import EndedFromOutside
from trainer.base.errors import UserError, readable
from trainer.base.files import crc32c_of
from trainer.base.locks import locked
from trainer.base.manifest import FILE, Manifest

PAGE = "dataset.html"
_WORK = ".converting"
_OURS = re.compile(
    rf"\w+-\d{{5,}}-of-\d{{5,}}\.(tfrecord|hashes|index)(\.tmp)?|{re.escape(FILE)}\.\d+\.tmp|{re.escape(PAGE)}(\.\d+\.tmp)?"
    r"|\.converting"
)
_BLOCK_BYTES = 1 << 12  # of a disk; the last one of a file is not full
_BESIDE_BYTES = 1 << 19  # for the manifest and the page, about
_LOCK_WAIT_S = 2.0  # the processes of a conversion that was killed end a moment after it


@contextlib.contextmanager
def claim(output: pathlib.Path) -> Iterator[None]:
    """Makes the directory and keeps others from converting into it.

    A failure removes what was made. Want of memory, and what the operating system refuses, are user errors.
    """
    made: list[pathlib.Path] = []
    deadline = time.monotonic() + _LOCK_WAIT_S

    def refuse() -> None:
        if time.monotonic() > deadline:
            raise UserError(f"another conversion is writing to --output {output}; wait for it to end")

    try:
        with writable(output):
            made += [path for path in (output, *output.parents) if not path.exists()]
            output.mkdir(parents=True, exist_ok=True)
            with locked(output, refuse):
                yield
    except BaseException as error:
        with contextlib.suppress(OSError):
            for path in made:
                path.rmdir()
        if isinstance(error, MemoryError):
            raise UserError("out of memory; convert with less --memory-gb or fewer --processes") from error
        raise


@contextlib.contextmanager
def writable(output: pathlib.Path | None) -> Iterator[None]:
    """Makes an `OSError` of what writes to the directory a user error; what is read in there has to tell of its own."""
    try:
        yield
    except BrokenPipeError:
        raise  # of standard output
    except OSError as error:
        raise UserError(f"cannot write --output {output}: {error.strerror or error}") from error


def require_room(output: pathlib.Path, num_bytes: int, *, files: int) -> None:
    """Refuses to begin if the bytes and files to be written, of shards and what lies beside them, are more than the disk has free."""
    due = num_bytes + files * _BLOCK_BYTES + _BESIDE_BYTES
    if due > (free := shutil.disk_usage(output).free):
        raise UserError(f"--output {output}: needs {due:,} bytes, and its disk has {free:,} free")


def finished(output: pathlib.Path) -> Manifest | None:
    """The manifest of the dataset there; None if there is nothing, or an unfinished conversion of ours.

    Anything else is refused.
    """
    names = {path.name for path in output.iterdir()}
    if FILE in names:
        return Manifest.load(output)
    if foreign := sorted(name for name in names if _WORK not in names or not _OURS.fullmatch(name)):
        raise UserError(
            f"--output {output} holds {foreign[0]!r}, which is not ours; choose an empty or a new directory"
        )
    return None


def refuse_other(output: pathlib.Path, held: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    """Refuses to go on if anything that is asked for is not what decided the content of what is there."""
    differing = [key for key in wanted if held.get(key) != wanted[key]]
    if differing:
        told = [key for key in wanted if key == "dataset" or key in differing]
        old, new = (" ".join(f"{key}={str(values.get(key))[:80]}" for key in told) for values in (held, wanted))
        raise UserError(
            f"--output {output} holds another dataset ({old}; asked for is {new}); choose another directory or delete it"
        )


def verify(output: pathlib.Path, manifest: Manifest) -> None:
    """Refuses a dataset of which a file is missing, or is not what its checksum in the manifest says."""
    checksums = [item for split in manifest.splits.values() for item in split.checksums.items()]
    for name, crc32c in checksums:
        path = output / name
        with readable(path):
            intact = path.is_file() and crc32c_of(path) == crc32c
        if not intact:
            raise UserError(f"{path} is missing or damaged; delete the directory and convert again")


def build(output: pathlib.Path, write: Callable[[pathlib.Path], Manifest]) -> Manifest:
    """Has `write` make the files of a dataset, given a directory for unfinished work, and then saves its manifest.

    What the user has to mend leaves nothing; what stops the work otherwise leaves what is done for the next time. Needs
    `finished(output) is None`.
    """
    work = output / _WORK
    try:
        work.mkdir(exist_ok=True)
        manifest = write(work)
        manifest.save(output)
        tidy(output)
    except EndedFromOutside:
        raise
    except (UserError, OSError):
        discard(output)
        raise
    return manifest


def copy(finished: pathlib.Path, destination: pathlib.Path) -> None:
    """Copies a dataset, its manifest last, to a mounted bucket, where files cannot be locked or renamed as on a disk.

    What an earlier attempt left there is deleted, and a failure leaves nothing.
    """
    destination.mkdir(parents=True, exist_ok=True)
    discard(destination)
    try:
        for path in sorted(finished.iterdir(), key=lambda path: path.name == FILE):
            shutil.copyfile(path, destination / path.name)
    except BaseException:
        discard(destination)
        raise


def tidy(output: pathlib.Path) -> None:
    """Deletes what a finished dataset does not need any more."""
    shutil.rmtree(output / _WORK, ignore_errors=True)
    for name in (FILE, PAGE):
        for path in output.glob(f"{name}.*.tmp"):
            path.unlink()


def discard(output: pathlib.Path) -> None:
    """Deletes what is ours, the manifest first."""
    (output / FILE).unlink(missing_ok=True)
    for path in output.iterdir():
        if path.is_file() and _OURS.fullmatch(path.name):
            path.unlink(missing_ok=True)
    shutil.rmtree(output / _WORK, ignore_errors=True)
