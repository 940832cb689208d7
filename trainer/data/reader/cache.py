"""Copies of a split's files on a local disk, checked while they are made.

    directory = localize(manifest, "gs://bucket/data", "train", "/var/cache")   # /var/cache/<fingerprint>

A file that is there was complete and right when it was put there; several processes may copy at once, the first does.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator

import google_crc32c
from etils import epath

from trainer.base.errors import UserError
from trainer.base.files import store_errors
from trainer.base.manifest import Manifest
from trainer.data.reader.shards import damaged, missing_is_told

_AT_ONCE = 4
_PIECE_BYTES = 8 << 20
_POLL_S = 0.5
_SPARE = 1.02  # of the disk's free bytes for what is copied


def default_dir() -> str:
    """Where copies go without being told: where the system keeps temporary files."""
    return os.path.join(tempfile.gettempdir(), "dataset-cache")


def missing_bytes(manifest: Manifest, split: str, cache_dir: str) -> int:
    """Bytes of the split that have yet to be copied."""
    directory = pathlib.Path(cache_dir) / manifest.fingerprint
    return sum(s.bytes for s in manifest.split(split).shards if not (directory / s.file).exists())


def fits(num_bytes: int, cache_dir: str) -> bool:
    """Whether a disk has room for so many bytes."""
    place = pathlib.Path(cache_dir).absolute()
    while not place.exists():
        place = place.parent
    return num_bytes * _SPARE <= shutil.disk_usage(place).free


def localize(
    manifest: Manifest, data_dir: str, split: str, cache_dir: str, progress: Callable[[int], object] = lambda done: None
) -> str:
    """Copies the files of a split that are not there yet. Returns the directory of the copies.

    Args:
      manifest: Of the dataset.
      data_dir: Where the dataset is.
      split: Name of the split.
      cache_dir: Where copies of datasets are kept.
      progress: Called now and then with the bytes copied so far.

    Raises:
      UserError: If a file is missing or is not what the manifest says, or the disk cannot take it.
    """
    directory, source = pathlib.Path(cache_dir) / manifest.fingerprint, epath.Path(data_dir)
    files = manifest.split(split).checksums
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _only_one(directory, progress), concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            missing = {name: crc32c for name, crc32c in files.items() if not (directory / name).exists()}
            if missing and not fits(missing_bytes(manifest, split, cache_dir), cache_dir):
                raise UserError(f"--cache-dir {cache_dir}: no room for the {split} split; choose another disk")
            done = [0]

            def copy(name: str) -> None:
                for piece in _copy(source / name, directory / name, missing[name]):
                    done[0] += piece
                    progress(done[0])

            list(pool.map(copy, missing))  # the first that fails cancels those that wait
    except OSError as error:
        raise UserError(
            f"{data_dir} cannot be copied to --cache-dir {cache_dir} ({error}); mend it, or choose another"
        ) from None
    return os.fspath(directory)


@contextlib.contextmanager
def _only_one(directory: pathlib.Path, progress: Callable[[int], object]) -> Iterator[None]:
    with open(directory / ".lock", "w") as file:
        while True:
            try:
                # A lock of the kernel's ends with its process, however that ends.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                progress(0)
                time.sleep(_POLL_S)
        yield


def _copy(source: epath.Path, target: pathlib.Path, crc32c: str) -> Iterator[int]:
    """Copies one file whole or not at all; yields the bytes of each piece."""
    digest, temporary = google_crc32c.Checksum(), target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        with missing_is_told(source), store_errors(), source.open("rb") as file, open(temporary, "wb") as copy:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
                copy.write(piece)
                yield len(piece)
        if digest.hexdigest().decode() != crc32c:
            raise damaged(source, "is not the file that the manifest lists (CRC-32C differs)")
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
