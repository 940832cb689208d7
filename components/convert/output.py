"""An output directory that ends as a finished dataset or as it was.

    with claim(output):
        if finished(output) is None:
            build(output, write_shards)

Unfinished files lie in `.converting`, which doubles as the mark of our own leftovers: without it nothing is deleted.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator

from trainer.errors import UserError
from trainer.manifest import FILE, Manifest

_WORK = ".converting"
_OURS = re.compile(rf"\w+-\d{{5,}}-of-\d{{5,}}\.(tfrecord|index)|\.{re.escape(FILE)}\.\d+|{re.escape(_WORK)}")


@contextlib.contextmanager
def claim(output: pathlib.Path) -> Iterator[None]:
    """Makes the directory and keeps others from converting into it; a failure removes what was made.

    Raises:
      UserError: If that is not possible, or an operating system error ends the block.
    """
    made = [path for path in (output, *output.parents) if not path.exists()]
    try:
        output.mkdir(parents=True, exist_ok=True)
        with _locked(output):
            yield
    except BaseException as error:
        with contextlib.suppress(OSError):
            for path in made:
                path.rmdir()
        if isinstance(error, OSError):
            raise UserError(f"cannot write --output {output}: {error.strerror or error}") from error
        raise


@contextlib.contextmanager
def _locked(directory: pathlib.Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            # A lock of the kernel's ends with its process, however that ends.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another conversion is writing to --output {directory}; wait for it to end") from None
        yield
    finally:
        os.close(descriptor)


def finished(output: pathlib.Path) -> Manifest | None:
    """The manifest of the dataset there; None if there is nothing, or an unfinished conversion of ours.

    Raises:
      UserError: If there is anything else.
    """
    names = {path.name for path in output.iterdir()}
    if FILE in names:
        return Manifest.load(output)
    foreign = sorted(name for name in names if _WORK not in names or not _OURS.fullmatch(name))
    if foreign:
        raise UserError(
            f"--output {output} holds {foreign[0]!r}, which is not ours; choose an empty or a new directory"
        )
    return None


def verify(output: pathlib.Path, manifest: Manifest) -> None:
    """Compares the files there with the checksums of their manifest.

    Raises:
      UserError: If one is missing or was changed.
    """
    for shard in (shard for split in manifest.splits.values() for shard in split.shards):
        for name, sha256 in ((shard.file, shard.sha256), (shard.index, shard.index_sha256)):
            if name and not _intact(output / name, sha256):
                raise UserError(f"{output / name} is missing or damaged; delete the directory and convert again")


def _intact(path: pathlib.Path, sha256: str) -> bool:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except FileNotFoundError:
        return False


def build(output: pathlib.Path, write: Callable[[pathlib.Path], Manifest]) -> Manifest:
    """Publishes the files that `write` puts into the directory it is given, the manifest last.

    A failure of any kind removes them. Needs `finished(output) is None`.
    """
    work = output / _WORK
    try:
        _discard(output)
        work.mkdir()
        manifest = write(work)
        for path in work.iterdir():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
            path.replace(output / path.name)
        manifest.save(output)
        work.rmdir()
    except BaseException:
        _discard(output)
        raise
    return manifest


def _discard(output: pathlib.Path) -> None:
    (output / FILE).unlink(missing_ok=True)
    for path in output.iterdir():
        if path.is_file() and _OURS.fullmatch(path.name):
            path.unlink()
    shutil.rmtree(output / _WORK, ignore_errors=True)
