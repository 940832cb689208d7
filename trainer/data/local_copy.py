"""Copies of the training files on a local disk, checked while they are made.

    directory = localize(manifest, "gs://bucket/data", "/var/cache", progress)   # /var/cache/<fingerprint>

A file that is there was complete and right when it was put there; several processes may copy at once, the first does.
"""

import concurrent.futures
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator

import google_crc32c
from etils import epath

from common.errors import UserError
from common.locks import locked
from common.manifest import Manifest
from trainer.data.shards import damaged, readable

# Where copies go without being told: where the system keeps temporary files.
DEFAULT_DIR = os.path.join(tempfile.gettempdir(), "dataset-cache")
_AT_ONCE = 4
_PIECE_BYTES = 8 << 20
_SPARE = 1.02  # of the disk's free bytes for what is copied


def gb(num_bytes: float) -> str:
    """A number of bytes in words."""
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 5e7 else f"{num_bytes / 1e6:,.1f} MB"


def _check_room(manifest: Manifest, cache_dir: str) -> None:
    """Refuses a disk without room for the files that have yet to be copied to it."""
    directory = pathlib.Path(cache_dir).absolute()
    copies = directory / manifest.fingerprint
    missing_bytes = sum(s.bytes for s in manifest.split("train").shards if not (copies / s.file).exists())
    while not directory.exists():
        directory = directory.parent
    free_bytes = shutil.disk_usage(directory).free
    if missing_bytes * _SPARE > free_bytes:
        raise UserError(
            f"--cache-dir {cache_dir}: {gb(missing_bytes * _SPARE)} are needed there for the train split, and "
            f"{gb(free_bytes)} are free; give --cache-dir on a disk that has room"
        )


def localize(manifest: Manifest, data_dir: str, cache_dir: str, progress: Callable[[int], object]) -> str:
    """Copies the training files that are not there yet. Returns the directory of the copies.

    Calls `progress` now and then with the bytes copied so far.

    Raises:
      UserError: If a file is missing or is not what the manifest says, or the disk cannot take it.
    """
    directory, source = pathlib.Path(cache_dir) / manifest.fingerprint, epath.Path(data_dir)
    files = manifest.split("train").checksums
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = locked(directory / ".lock", lambda: progress(0), every_s=0.5)
        with lock, concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            missing = [name for name in files if not (directory / name).exists()]
            _check_room(manifest, cache_dir)
            done = [0]

            def copy(name: str) -> None:
                for piece in _copy(source / name, directory / name, files[name]):
                    done[0] += piece
                    progress(done[0])

            list(pool.map(copy, missing))  # the first that fails cancels those that wait
    except OSError as error:
        raise UserError(
            f"{data_dir} cannot be copied to --cache-dir {cache_dir} ({error}); mend it, or choose another"
        ) from None
    return os.fspath(directory)


def _copy(source: epath.Path, target: pathlib.Path, crc32c: str) -> Iterator[int]:
    """Copies one file whole or not at all; yields the bytes of each piece."""
    digest, temporary = google_crc32c.Checksum(), target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as copy, readable(source), source.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
                copy.write(piece)
                yield len(piece)
        if digest.hexdigest().decode() != crc32c:
            raise damaged(source)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
