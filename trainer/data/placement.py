"""Where the training split is read, and whether it is kept in memory. The order of samples is the same in both.

    choice = choose(manifest, wish="auto", data_dir=D, cache_dir=None, budget_bytes=4e9)
    print(choice)     # reader: mapped (15.4 GB of train would take 46.2 GB in memory; the budget is 4.0 GB)
    place = provide_files(choice, manifest, alive)    # the same, of files on a local disk

- `resident`: the whole split in memory.
- `mapped`: the files are mapped into memory, and the system keeps of them what it has room for.

Files are read on a local disk, where they lie or are copied to. Each is compared with its CRC-32C once on a machine: while
it is copied, or before the first job that reads it where it lies.

Imports no TensorFlow.
"""

import concurrent.futures
import dataclasses
import json
import math
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable

import google_crc32c
from etils import epath

from common.errors import UserError
from common.locks import locked
from common.machine import available_bytes, gpu_free_bytes
from common.manifest import Manifest
from common.storage.files import read_bytes, write_text
from trainer.data.shards import FILES_AT_ONCE, damaged, in_bucket, readable, verify

# What is known of datasets on this machine, and copies of those of buckets: a directory for each fingerprint.
DEFAULT_DIR = os.path.join(tempfile.gettempdir(), f"dataset-cache-{os.getuid()}")
BUDGET_SHARE = 0.5  # of the memory that is available, for all training replicas of a machine together
_LOADING = 3  # times the files' bytes that loading a split takes at its worst: files, records, columns
_PROGRESS_S = 5.0
_PIECE_BYTES = 8 << 20
_SPARE = 1.02  # of the disk's free bytes for what is copied


@dataclasses.dataclass(frozen=True)
class Choice:
    """How to read the training split."""

    data_dir: str  # where the dataset lies
    mode: str  # `resident` or `mapped`
    reason: str  # in words
    cache_dir: str | None  # where files are copied to; None if they are read where they are

    def __str__(self) -> str:
        copied = f", copied to {self.cache_dir}" if self.cache_dir else ""
        return f"reader: {self.mode}{copied} ({self.reason})"


def budget(replicas_here: int) -> float:
    """Returns bytes of memory for the training split: this replica's part of a half of what is available."""
    return available_bytes() * BUDGET_SHARE / replicas_here


def gpu_budget() -> float:
    """Returns bytes of each GPU's memory for the training split: a half of what is free."""
    return gpu_free_bytes() * BUDGET_SHARE


def gb(num_bytes: float) -> str:
    """Returns a number of bytes in words."""
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 5e7 else f"{num_bytes / 1e6:,.1f} MB"


def choose(
    manifest: Manifest,
    *,
    data_dir: str,
    budget_bytes: float,
    wish: str = "auto",
    cache_dir: str | None = None,
    gpu_bytes: float = math.inf,
) -> Choice:
    """Chooses the reader that suits the split and the machine, unless the `wish`, as `--reader` has it, is for one.

    `gpu_bytes` are of memory for the split on each GPU; infinite where training is on CPUs, whose memory is the machine's.
    """
    size = sum(shard.bytes for shard in manifest.split("train").shards)
    if any(feature.encoding == "image" for feature in manifest.features):
        gpu_bytes = math.inf  # files of images are decoded on the host
    mode = "mapped"
    if wish != "auto":
        mode, reason = wish, "as asked for"
    elif size * _LOADING > budget_bytes:
        reason = f"{gb(size)} of train would take {gb(_LOADING * size)} in memory; the budget is {gb(budget_bytes)}"
    elif size > gpu_bytes:
        reason = f"{gb(size)} of train would lie on each GPU, whose budget is {gb(gpu_bytes)}"
    else:
        mode, reason = "resident", f"{gb(size)} of train fit into the memory budget of {gb(budget_bytes)}"
    return Choice(data_dir, mode, reason, cache_dir or (DEFAULT_DIR if in_bucket(data_dir) else None))


def provide_files(choice: Choice, manifest: Manifest, alive: Callable[[], object] = lambda: None) -> Choice:
    """Copies the training files, or verifies them where they lie, unless that is done; others on this machine wait.

    Calls `alive` every few seconds meanwhile.

    Returns:
      The choice, with the directory to read.

    Raises:
      UserError: If a file is missing or is not what the manifest says, or the disk cannot take it.
    """
    directory = pathlib.Path(choice.cache_dir or DEFAULT_DIR, manifest.fingerprint)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory / ".lock", alive, every_s=0.5):
            if choice.cache_dir:
                _copy_missing(choice, manifest, directory, alive)
                return dataclasses.replace(choice, data_dir=os.fspath(directory))
            _verify_once(choice.data_dir, manifest, directory / "verified.json", alive)
            return choice
    except OSError as error:
        raise UserError(
            f"{choice.data_dir} cannot be copied to --cache-dir {choice.cache_dir} ({error}); mend it, or choose another"
            if choice.cache_dir
            else f"{directory} cannot be written ({error}); make it writable, or set TMPDIR to a directory that is"
        ) from None


def _verify_once(data_dir: str, manifest: Manifest, record: pathlib.Path, alive: Callable[[], object]) -> None:
    """Compares files with their checksums, unless `record` says that it was done since they were last written."""
    paths = [pathlib.Path(data_dir, name) for name in manifest.split("train").checksums]
    written = {}
    for path in paths:
        with readable(path):
            status = path.stat()
        written[os.path.abspath(path)] = [status.st_size, status.st_mtime_ns, status.st_ino]
    stamp = json.dumps(written)
    if read_bytes(record) != stamp.encode():
        verify(manifest, data_dir, "train", alive)
        write_text(record, stamp)


def _copy_missing(choice: Choice, manifest: Manifest, directory: pathlib.Path, alive: Callable[[], object]) -> None:
    checksums = manifest.split("train").checksums
    missing = [name for name in checksums if not (directory / name).exists()]
    needed = _SPARE * sum(s.bytes for s in manifest.split("train").shards if s.file in missing)
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise UserError(
            f"--cache-dir {choice.cache_dir}: {gb(needed)} are needed there for the train split, and {gb(free)} are free; "
            "give --cache-dir on a disk that has room"
        )
    copied, printed_at = 0, time.monotonic()

    def progress(num_bytes: int) -> None:
        nonlocal copied, printed_at
        copied += num_bytes
        if time.monotonic() - printed_at > _PROGRESS_S:
            printed_at = time.monotonic()
            alive()
            print(f"copying the training files to {choice.cache_dir}: {copied / 1e9:.1f} GB so far", flush=True)

    def copy(name: str) -> None:
        _copy(epath.Path(choice.data_dir) / name, directory / name, checksums[name], progress)

    with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        list(pool.map(copy, missing))  # the first that fails cancels those that wait


def _copy(source: epath.Path, target: pathlib.Path, crc32c: str, progress: Callable[[int], object]) -> None:
    """Copies one file whole or not at all, and compares it with its checksum."""
    digest, temporary = google_crc32c.Checksum(), target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as copy, readable(source), source.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
                copy.write(piece)
                progress(len(piece))
        if digest.hexdigest().decode() != crc32c:
            raise damaged(source)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
