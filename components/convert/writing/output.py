"""An output directory that ends as a finished dataset or as it was.

    with claim(output):
        if finished(output) is None:
            build(output, write_shards)

Unfinished files lie in `.converting`, which doubles as the mark of our own leftovers: without it nothing is deleted.
Shards that several commands write lie in `.parts` until the last one publishes them; these are kept.
"""

import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping

from trainer.base.errors import UserError, readable
from trainer.base.files import crc32c_of
from trainer.base.locks import locked
from trainer.base.manifest import FILE, Manifest

PARTS = ".parts"
PAGE = "dataset.html"
_WORK = ".converting"
_OURS = re.compile(
    rf"\w+-\d{{5,}}-of-\d{{5,}}\.(tfrecord|index)|{re.escape(FILE)}\.\d+\.tmp|{re.escape(PAGE)}(\.\d+\.tmp)?"
    r"|\.converting|\.parts"
)
_BLOCK_BYTES = 1 << 12  # of a disk; the last one of a file is not full
_BESIDE_BYTES = 1 << 19  # for the manifest and the page, about
_LOCK_WAIT_S = 2.0  # the processes of a conversion that was killed end a moment after it


@contextlib.contextmanager
def claim(output: pathlib.Path, *, shared: bool = False) -> Iterator[None]:
    """Makes the directory and keeps others from converting into it, but for those that share it all.

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
            with locked(output, refuse, kind=fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
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
    """Refuses to begin if the bytes and files to be written, of shards and indexes, are more than the disk has free."""
    due = num_bytes + files * _BLOCK_BYTES + _BESIDE_BYTES
    if files and due > (free := shutil.disk_usage(output).free):
        raise UserError(f"--output {output}: needs {due:,} bytes, and its disk has {free:,} free")


def finished(output: pathlib.Path, *, parts: bool = False) -> Manifest | None:
    """The manifest of the dataset there; None if there is nothing, or an unfinished conversion of ours.

    Anything else is refused, and so is a conversion in parts unless `parts` says that it may be one.
    """
    names = {path.name for path in output.iterdir()}
    if FILE in names:
        return Manifest.load(output)
    ours = names & {_WORK, PARTS}
    if foreign := sorted(name for name in names if not ours or not _OURS.fullmatch(name)):
        raise UserError(
            f"--output {output} holds {foreign[0]!r}, which is not ours; choose an empty or a new directory"
        )
    if PARTS in names and not parts:
        raise UserError(
            f"--output {output} holds shards that --shard-range wrote; write the others, then --finish, or delete it"
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
    for name, crc32c in _files(manifest):
        if not intact(output / name, crc32c):
            raise UserError(f"{output / name} is missing or damaged; delete the directory and convert again")


def _files(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Names and CRC-32C of the shards and their indexes."""
    for split in manifest.splits.values():
        yield from split.checksums.items()


def intact(path: pathlib.Path, crc32c: str) -> bool:
    """Whether the file is there and has that CRC-32C."""
    with readable(path):
        return path.is_file() and crc32c_of(path) == crc32c


def build(output: pathlib.Path, write: Callable[[pathlib.Path], Manifest]) -> Manifest:
    """Publishes the files that `write` puts into the directory it is given, the manifest last.

    A failure of any kind removes them. Needs `finished(output) is None`.
    """
    work = output / _WORK
    try:
        discard(output)
        work.mkdir()
        manifest = write(work)
        publish(work, output, manifest)
    except BaseException:
        discard(output)
        raise
    return manifest


def publish(work: pathlib.Path, output: pathlib.Path, manifest: Manifest) -> None:
    """Moves the manifest's files and the page, if in `work`, in the same file system, to `output`; the manifest is last."""
    for name in (*(name for name, _ in _files(manifest)), PAGE):
        if (path := work / name).exists():  # it may have been moved before a kill
            settle(path, output / name)
    manifest.save(output)
    tidy(output)


def settle(path: pathlib.Path, name: pathlib.Path) -> None:
    """Gives a file its name once its content is on the disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    path.replace(name)


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
    for name in (_WORK, PARTS):
        shutil.rmtree(output / name, ignore_errors=True)
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
