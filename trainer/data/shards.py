"""Files of a split: how they are told from others, and how what is wrong with one is reported.

    verify(manifest, "data/mnist", "test")      # compares every file with its checksum
    check_files("data/mnist", shards)           # compares sizes and beginnings, which takes no time

Imports no TensorFlow.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from etils import epath

from common.errors import UserError, store_errors
from common.manifest import HEAD_BYTES, Manifest, Shard
from common.storage.files import crc32c, crc32c_of, require_file
from common.storage.storage import map_in_threads


def damaged(
    path: os.PathLike[str], what: str = "is not the file that the manifest lists (CRC-32C differs)"
) -> UserError:
    """Returns the error that names a file that is not as it was written."""
    return UserError(f"{path} {what}; copy the file again, or convert the dataset again")


@contextlib.contextmanager
def readable(path: os.PathLike[str]) -> Iterator[None]:
    """Names the file that is missing or cannot be read."""
    try:
        with store_errors():
            yield
    except EOFError:
        raise damaged(path, "ends too early") from None
    except FileNotFoundError:
        raise UserError(f"{path} is missing; copy it there, or convert the dataset again") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error}); see whether the storage is up") from None


def content_hashes(manifest: Manifest, data_dir: str, split: str) -> Iterator[np.ndarray]:
    """Yields 64-bit hashes that tell a split's records from others in any dataset, uint64 [N] of each file.

    Records that are equal but for the label have one hash.

    Raises:
      UserError: If a file of hashes is missing, or not as the manifest says.
    """
    for shard in manifest.split(split).shards:
        path = epath.Path(data_dir) / shard.hashes
        with readable(path):
            content = path.read_bytes()
        if crc32c(content) != shard.hashes_crc32c:
            raise damaged(path)
        yield np.frombuffer(content, "<u8")


def verify(
    manifest: Manifest, data_dir: str, split: str, alive: Callable[[], object] = lambda: None
) -> None:
    """Compares every file of a split with its CRC-32C, and calls `alive` after each.

    Raises:
      UserError: If a file is missing or is not what the manifest lists; it names the first.
    """

    def check(name: str, listed: str) -> None:
        path = epath.Path(data_dir) / name
        with readable(path):
            actual = crc32c_of(path)
        if actual != listed:
            raise damaged(path)
        alive()

    checksums = manifest.split(split).checksums
    map_in_threads(check, checksums, checksums.values())


def check_files(data_dir: str, shards: Sequence[Shard]) -> None:
    """Compares size and beginning of files with what the manifest lists, as one may have another one's name.

    Raises:
      UserError: If a file is missing or another; it names the first.
    """

    def check(shard: Shard) -> None:
        path = epath.Path(data_dir) / shard.file
        with readable(path):
            size = require_file(path).num_bytes
            with path.open("rb") as file:
                head = file.read(HEAD_BYTES)
        if size != shard.bytes:
            raise damaged(path, f"has {size:,} bytes, not the manifest's {shard.bytes:,}")
        if crc32c(head) != shard.head_crc32c:
            raise damaged(
                path, "is not the file that the manifest lists, or is damaged at its start"
            )

    map_in_threads(check, shards)
