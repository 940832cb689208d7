"""Choice of the reader that suits the training split and a machine. The order of samples is the same in both.

    choice = choose(manifest, wish="auto", data_dir=D, cache_dir=None, budget_bytes=4e9, asynchronous=False)
    print(choice)     # reader: mapped (15.4 GB of train would take 46.2 GB in memory; the budget is 4.0 GB)

- `resident`: the whole split in memory; checked by CRC-32C as it is loaded.
- `mapped`: files on a local disk, mapped into memory; copied to one and checked by CRC-32C if they are in a bucket or a
  cache directory is given. Each record is checked by its CRC-32C when it is used.

Imports no TensorFlow.
"""

import dataclasses
import math

from common.errors import UserError
from common.machine import available_bytes, gpu_free_bytes
from common.manifest import Manifest
from trainer.data import local_copy
from trainer.data.local_copy import gb
from trainer.data.shards import in_bucket

BUDGET_SHARE = 0.5  # of the memory that is available, for all training replicas of a machine together
_LOADING = 3  # times the files' bytes that loading a split takes at its worst: files, records, columns


@dataclasses.dataclass(frozen=True)
class Choice:
    """How to read the training split."""

    data_dir: str  # where the files are that are read
    mode: str  # `resident` or `mapped`
    reason: str  # in words
    cache_dir: str | None  # where mapped files are copied to; None if they are mapped where they are
    asynchronous: bool  # whether workers of a parameter-server job read, where only TensorFlow's own operations can run

    def __str__(self) -> str:
        copied = f", copied to {self.cache_dir}" if self.mode == "mapped" and self.cache_dir else ""
        return f"reader: {self.mode}{copied} ({self.reason})"


def budget(replicas_here: int) -> float:
    """Bytes of memory for the training split: this replica's part of a half of what is available."""
    return available_bytes() * BUDGET_SHARE / replicas_here


def gpu_budget() -> float:
    """Bytes of each GPU's memory for the training split: a half of what is free."""
    return gpu_free_bytes() * BUDGET_SHARE


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
    """Chooses the reader, or checks the `wish`, as `--reader` has it.

    `gpu_bytes` are of memory for the split on each GPU; infinite where training is on CPUs, whose memory is the machine's.

    Raises:
      UserError: If the reader cannot be used here.
    """
    size = sum(shard.bytes for shard in manifest.split("train").shards)
    if any(feature.encoding == "image" for feature in manifest.features):
        gpu_bytes = math.inf  # files of images are decoded on the host
    if in_bucket(data_dir):
        cache_dir = cache_dir or local_copy.DEFAULT_DIR
    if wish != "auto":
        mode, reason = wish, "as asked for"
    elif size * _LOADING > budget_bytes:
        mode = "mapped"
        reason = f"{gb(size)} of train would take {gb(_LOADING * size)} in memory; the budget is {gb(budget_bytes)}"
    elif size > gpu_bytes:
        mode, reason = "mapped", f"{gb(size)} of train would lie on each GPU, whose budget is {gb(gpu_bytes)}"
    else:
        mode, reason = "resident", f"{gb(size)} of train fit into the memory budget of {gb(budget_bytes)}"
    if mode == "mapped" and cache_dir and asynchronous and wish == "auto":
        # Each replica decides by its own memory, and the chief's decision has to hold for all workers.
        raise UserError(f"{reason}; give --reader mapped, so that every worker copies the files")
    if asynchronous and mode == "mapped" and manifest.record_bytes is None:
        raise UserError(
            f"reader mapped ({reason}): workers of a parameter-server job read by TensorFlow's own operations, which "
            "cannot map records that differ in length; use --reader resident with more memory, or --strategy "
            "multi_worker_mirrored"
        )
    return Choice(data_dir, mode, reason, cache_dir, asynchronous)
