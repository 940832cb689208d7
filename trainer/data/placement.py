"""Place where the training split is read, and whether it is kept in memory.

    choice = choose(manifest, data_dir=D, budget_bytes=budget(replicas_here=1, on_gpus=False))
    print(choice)     # reader: mapped (15,400.0 MB of train, and room for 4,000.0 MB in memory)
    place = provide_files(choice, manifest, alive)    # the choice, with files on a local disk

- `resident`: the whole split is in memory.
- `mapped`: the files are mapped into memory, and the system caches what it has room for.

The order of samples is the same in both. Files are read on a local disk, where they lie or are
copied to. Each is compared with its CRC-32C once per machine: when it is copied, or before the
first job that reads it where it lies.

Imports no TensorFlow.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable

from etils import epath

from common.errors import UserError
from common.locks import locked
from common.machine import available_bytes, gpu_free_bytes
from common.manifest import Manifest
from common.storage.files import crc32c_of, read_bytes, require_file, write_text
from common.storage.storage import is_remote, map_in_threads
from trainer.data.shards import damaged, readable, verify

# Holds a directory for each fingerprint of a dataset: the record of the files that were verified,
# and copies of files of buckets.
DEFAULT_DIR = os.path.join(tempfile.gettempdir(), f"dataset-cache-{os.getuid()}")
_SHARE = 0.5  # Part of the free memory that the training split may take.
# Loading a split takes, at worst, three times the bytes of its files: files, records and columns.
_LOADING = 3


@dataclasses.dataclass(frozen=True)
class Choice:
    """A way to read the training split.

    Attributes:
      data_dir: Directory of the dataset.
      mode: `resident` or `mapped`.
      reason: Reason for the mode, in words.
      cache_dir: Directory that files are copied to; None if they are read where they are.
    """

    data_dir: str
    mode: str
    reason: str
    cache_dir: str | None

    def __str__(self) -> str:
        copied = f", copied to {self.cache_dir}" if self.cache_dir else ""
        return f"reader: {self.mode}{copied} ({self.reason})"


def budget(replicas_here: int, on_gpus: bool) -> float:
    """Returns how many bytes of shards this replica may load into memory.

    Loading takes up to three times the bytes of the shards, and may take half of the free memory.
    So this is a sixth of the free memory, divided by the replicas. On GPUs it is also at most half
    of what is free there.

    Args:
      replicas_here: Number of replicas that share this machine's memory.
      on_gpus: Whether the split is also copied to each GPU, so that the GPU with least memory
        counts too; the result is 0 if nvidia-smi does not know it.
    """
    memory = available_bytes() * _SHARE / _LOADING / replicas_here
    return min(memory, gpu_free_bytes() * _SHARE) if on_gpus else memory


def choose(
    manifest: Manifest,
    *,
    data_dir: str,
    budget_bytes: float,
    wish: str = "auto",
    cache_dir: str | None = None,
) -> Choice:
    """Chooses how to read the training split.

    Args:
      manifest: Manifest of the dataset.
      data_dir: Directory of the dataset.
      budget_bytes: Bytes of shards that may be loaded into memory; with `auto`, a split that has
        more is mapped.
      wish: Value of `--reader`; `auto` to go by the budget.
      cache_dir: Directory to copy files to; None to copy only those of a bucket (`gs://`, or
        mounted at `/gcs/`), to `DEFAULT_DIR`.

    Raises:
      UserError: If the dataset has no training split.
    """
    size = sum(shard.bytes for shard in manifest.split("train").shards)
    mode, reason = wish, "as --reader says"
    if wish == "auto":
        mode = "resident" if size <= budget_bytes else "mapped"
        reason = f"{_mb(size)} of train, and room for {_mb(budget_bytes)} in memory"
    if is_remote(data_dir) or data_dir.startswith("/gcs/"):  # Vertex AI mounts buckets at /gcs.
        cache_dir = cache_dir or DEFAULT_DIR
    return Choice(data_dir, mode, reason, cache_dir)


def provide_files(
    choice: Choice, manifest: Manifest, alive: Callable[[], object] = lambda: None
) -> Choice:
    """Copies the training files to a local disk, or verifies them where they lie.

    They are copied to `CACHE_DIR/FINGERPRINT` if the choice has a `cache_dir`. Otherwise they are
    compared with their CRC-32C, which `verified.json` in `DEFAULT_DIR/FINGERPRINT` then records.
    What was done before is not done again. One process of a machine does it while others wait.

    Args:
      choice: Result of `choose`.
      manifest: Manifest of the dataset.
      alive: Function to call after each file, in any of several threads, and every half second
        while waiting.

    Returns:
      The choice, with the directory to read as `data_dir`.

    Raises:
      UserError: If the split is empty, if a file is missing or not the one in the manifest, if it
        cannot be read or written, or if the disk is too full.
      ConnectionError: If the bucket of the dataset does not answer.
    """
    directory = pathlib.Path(choice.cache_dir or DEFAULT_DIR, manifest.fingerprint)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory / ".lock", alive, every_s=0.5):
            if choice.cache_dir:
                _copy_missing(choice.data_dir, manifest, directory, alive)
                return dataclasses.replace(choice, data_dir=os.fspath(directory))
            versions = {}
            for name in manifest.split("train").checksums:
                path = os.path.abspath(os.path.join(choice.data_dir, name))
                with readable(path):
                    file = require_file(path)
                versions[path] = [file.num_bytes, file.version]
            # The record has sizes and times of the verified
            # files, so that changed files are verified again.
            record, stamp = directory / "verified.json", json.dumps(versions)
            if read_bytes(record) != stamp.encode():
                verify(manifest, choice.data_dir, "train", alive)
                write_text(record, stamp)
            return choice
    except ConnectionError:
        raise  # A failing bucket is not the fault of the local disk.
    except OSError as error:
        raise UserError(
            f"{directory} cannot be written ({error}); make it writable, or give another "
            "--cache-dir or TMPDIR"
        ) from None


def _mb(num_bytes: float) -> str:
    return f"{num_bytes / 1e6:,.1f} MB"


def _copy_missing(
    data_dir: str, manifest: Manifest, directory: pathlib.Path, alive: Callable[[], object]
) -> None:
    """Copies each file that `directory` lacks, complete or not at all, and checks its CRC-32C.

    Args:
      data_dir: Directory of the dataset, local or in a bucket.
      manifest: Manifest of the dataset, of which the training files are copied.
      directory: Local directory to copy to; a file that exists there is not read again.
      alive: Function to call after each file, in any of several threads.

    Raises:
      UserError: If a file is missing, cannot be read or is not the one in the manifest, or if the
        disk is too full.
      ConnectionError: If a store does not answer.
      OSError: If a copy cannot be written.
    """
    split = manifest.split("train")
    missing = {
        name: crc32c for name, crc32c in split.checksums.items() if not (directory / name).exists()
    }
    needed, free = (
        sum(s.bytes for s in split.shards if s.file in missing),
        shutil.disk_usage(directory).free,
    )
    if needed > free:
        raise UserError(
            f"--cache-dir {directory.parent}: {_mb(needed)} are needed there for the train split, "
            f"and {_mb(free)} are free; give --cache-dir on a disk that has room"
        )
    if needed:
        print(f"copying {_mb(needed)} of training files to {directory.parent}")
    with tempfile.TemporaryDirectory(dir=directory) as temporary:

        def copy(name: str, crc32c: str) -> None:
            source, target = epath.Path(data_dir) / name, pathlib.Path(temporary, name)
            with readable(source), source.open("rb") as file, target.open("wb") as copied:
                shutil.copyfileobj(file, copied, 8 << 20)
            if crc32c_of(target) != crc32c:
                raise damaged(source)
            os.replace(target, directory / name)
            alive()

        map_in_threads(copy, missing, missing.values())
