"""Where the training split is read, and whether it is kept in memory. The order of samples is the same in both.

    choice = choose(manifest, data_dir=D, budget_bytes=budget(replicas_here=1, on_gpus=False))
    print(choice)     # reader: mapped (15,400.0 MB of train, and room for 4,000.0 MB in memory)
    place = provide_files(choice, manifest, alive)    # the same, of files on a local disk

- `resident`: the whole split in memory.
- `mapped`: the files are mapped into memory, and the system keeps of them what it has room for.

Files are read on a local disk, where they lie or are copied to. Each is compared with its CRC-32C
once on a machine: when it is copied, or before the first job that reads it where it lies.

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

# What is known of datasets on this machine, and copies of those of buckets: a directory for each
# fingerprint.
DEFAULT_DIR = os.path.join(tempfile.gettempdir(), f"dataset-cache-{os.getuid()}")
_SHARE = 0.5  # of the memory that is free, for the training split
_LOADING = (
    3  # times the files' bytes that loading a split takes at its worst: files, records, columns
)


@dataclasses.dataclass(frozen=True)
class Choice:
    """How to read the training split.

    Attributes:
      data_dir: Where the dataset lies.
      mode: `resident` or `mapped`.
      reason: In words.
      cache_dir: Where files are copied to; None if they are read where they are.
    """

    data_dir: str
    mode: str
    reason: str
    cache_dir: str | None

    def __str__(self) -> str:
        copied = f", copied to {self.cache_dir}" if self.cache_dir else ""
        return f"reader: {self.mode}{copied} ({self.reason})"


def budget(replicas_here: int, on_gpus: bool) -> float:
    """Returns how many bytes of shards this replica may load into memory, and onto each GPU if it trains on GPUs."""
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
    """Chooses the reader that suits the split and the machine, unless the `wish`, as `--reader` has it, is for one."""
    size = sum(shard.bytes for shard in manifest.split("train").shards)
    mode, reason = wish, "as --reader says"
    if wish == "auto":
        mode = "resident" if size <= budget_bytes else "mapped"
        reason = f"{_mb(size)} of train, and room for {_mb(budget_bytes)} in memory"
    if is_remote(data_dir) or data_dir.startswith("/gcs/"):  # Vertex AI mounts buckets there
        cache_dir = cache_dir or DEFAULT_DIR
    return Choice(data_dir, mode, reason, cache_dir)


def provide_files(
    choice: Choice, manifest: Manifest, alive: Callable[[], object] = lambda: None
) -> Choice:
    """Copies the training files, or verifies them where they lie, unless that is done; others on this machine wait.

    Calls `alive` after each file, and every half second while it waits.

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
                _copy_missing(choice.data_dir, manifest, directory, alive)
                return dataclasses.replace(choice, data_dir=os.fspath(directory))
            versions = {}
            for name in manifest.split("train").checksums:
                path = os.path.abspath(os.path.join(choice.data_dir, name))
                with readable(path):
                    file = require_file(path)
                versions[path] = [file.num_bytes, file.version]
            # Says which files were compared, as they were last written.
            record, stamp = directory / "verified.json", json.dumps(versions)
            if read_bytes(record) != stamp.encode():
                verify(manifest, choice.data_dir, "train", alive)
                write_text(record, stamp)
            return choice
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
    """Copies each file as a whole or not at all, and compares the copy with its checksum."""
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
            f"and {_mb(free)} are "
            "free; give --cache-dir on a disk that has room"
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
