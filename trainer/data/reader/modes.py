"""Which of the three ways to read suits the training split and a machine, in one line that says why. The order is the same.

    choice = choose(manifest, wish="auto", data_dir=D, cache_dir=None, budget_bytes=4e9, asynchronous=False)
    print(choice)     # reader: mapped (15.4 GB of train would take 46.2 GB in memory; the budget is 4.0 GB)

- `resident`: the whole split in memory; checked by CRC-32C as it is loaded.
- `mapped`: files on a local disk, mapped into memory; copied to one and checked by CRC-32C if they are remote or a cache
  directory is given. Each record is checked by its CRC-32C when it is used.
- `streaming`: nothing is kept but the window that training is in and what comes next, read in large pieces from wherever the
  files are (if they are local, by the system's read-ahead); checked record by record.

Imports no TensorFlow.
"""

import dataclasses
import math

from trainer.base.errors import UserError
from trainer.base.machine import available_bytes, gpu_free_bytes
from trainer.base.manifest import Manifest
from trainer.data.reader import cache
from trainer.data.reader.shards import in_bucket

BUDGET_SHARE = 0.5  # of the memory that is available, for all training replicas of a machine together
_LOADING = 3  # times the files' bytes that loading a split takes at its worst: files, records, columns


@dataclasses.dataclass(frozen=True)
class Choice:
    """How to read the training split."""

    data_dir: str  # where the files are that are read
    mode: str  # `resident`, `mapped` or `streaming`
    reason: str  # in words
    cache_dir: str | None  # where mapped files are copied to; None if they are mapped where they are
    budget_bytes: float  # of memory for the split
    asynchronous: bool  # whether workers of a parameter-server job read, where only TensorFlow's own operations can run

    def __str__(self) -> str:
        copied = f", copied to {self.cache_dir}" if self.mode == "mapped" and self.cache_dir else ""
        return f"reader: {self.mode}{copied} ({self.reason})"


def budget(memory_gb: float | None, replicas_here: int) -> float:
    """Bytes of memory for the training split: what is asked for, or this replica's part of a half of what is available."""
    return memory_gb * 1e9 if memory_gb else available_bytes() * BUDGET_SHARE / replicas_here


def gpu_budget(memory_gb: float | None) -> float:
    """Bytes of each GPU's memory for the training split: what is asked for, or a half of what is free."""
    return memory_gb * 1e9 if memory_gb else gpu_free_bytes() * BUDGET_SHARE


def choose(
    manifest: Manifest,
    *,
    data_dir: str,
    budget_bytes: float,
    wish: str = "auto",
    cache_dir: str | None = None,
    asynchronous: bool = False,
    gpu_bytes: float = math.inf,
) -> Choice:
    """Chooses the way, or checks the `wish`, as `--reader` has it; a `UserError` says that there is none.

    `gpu_bytes` are of memory for the split on each GPU; infinite where training is on CPUs, whose memory is the machine's.
    """
    size = sum(shard.bytes for shard in manifest.split("train").shards)
    remote, fixed = in_bucket(data_dir), manifest.record_bytes is not None
    if any(feature.encoding == "image" for feature in manifest.features):
        gpu_bytes = math.inf  # files of images are decoded on the host
    if remote or cache_dir:
        cache_dir = cache_dir or cache.DEFAULT_DIR
    room = not cache_dir or cache.has_room(manifest, cache_dir)
    held = f"{_gb(size)} of train would take {_gb(_LOADING * size)} while they are loaded; the budget is {_gb(budget_bytes)}"
    if size * _LOADING <= budget_bytes:
        held = f"{_gb(size)} of train would lie on each GPU, whose budget is {_gb(gpu_bytes)}"
    mode, reason = wish, "as asked for"
    if wish == "auto" and size * _LOADING <= budget_bytes and size <= gpu_bytes:
        mode, reason = "resident", f"{_gb(size)} of train fit into the memory budget of {_gb(budget_bytes)}"
    elif wish == "auto":
        mode, reason = ("mapped", held) if room else ("streaming", f"{held}; {cache_dir} has no room for a copy")
    if mode == "mapped" and not room:
        raise UserError(
            f"--reader mapped: {cache_dir} has no room for {_gb(size)}; give --cache-dir on another disk, or --reader streaming"
        )
    if asynchronous and mode == "mapped" and cache_dir and wish == "auto":
        # What each replica has room for, it decides alone; but the chief's choice has to hold for all workers.
        raise UserError(f"{held}; give --reader mapped, so that every worker copies the files, or --reader-memory-gb")
    if asynchronous and (mode == "streaming" or (mode == "mapped" and not fixed)):
        what, instead = "read from afar", "mapped with --cache-dir on a disk that has room"
        if mode == "mapped":
            what, instead = "map records that differ in length", "resident with more memory"
        raise UserError(
            f"reader {mode} ({reason}): workers of a parameter-server job read by TensorFlow's own operations, which "
            f"cannot {what}; use --reader {instead}, or --strategy multi_worker_mirrored"
        )
    return Choice(data_dir, mode, reason, cache_dir, budget_bytes, asynchronous)


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 5e7 else f"{num_bytes / 1e6:,.1f} MB"
