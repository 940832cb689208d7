"""Checks of a split's files against the manifest, and errors that name the wrong file.

    verify(manifest, "data/mnist", "test")      # compares every file with its checksum
    check_files("data/mnist", shards)           # compares sizes and beginnings, which is fast

Imports no TensorFlow.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from etils import epath

from common.errors import UserError, store_errors
from common.manifest import HEAD_BYTES, Manifest, Shard
from common.storage.files import crc32c, crc32c_of, require_file
from common.storage.storage import Path, map_in_threads


def damaged(
    path: Path, what: str = "is not the file that the manifest lists (CRC-32C differs)"
) -> UserError:
    """Returns an error about a file that is not as it was written.

    Args:
      path: Path of the file.
      what: Text that follows the path in the message.
    """
    return UserError(f"{path} {what}; copy the file again, or convert the dataset again")


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Context manager that turns errors of reading a dataset's file into a `UserError`.

    Args:
      path: Path of the file, which the message names.

    Raises:
      UserError: In place of `OSError`, `EOFError` and errors of TensorFlow's file system.
      ConnectionError: If a store does not answer, which is not the user's mistake.
    """
    try:
        with store_errors():
            yield
    except ConnectionError:
        raise
    except EOFError:
        raise damaged(path, "ends too early") from None
    except FileNotFoundError:
        raise UserError(f"{path} is missing; copy it there, or convert the dataset again") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error})") from None


def content_hashes(manifest: Manifest, data_dir: str, split: str) -> Iterator[np.ndarray]:
    """Yields the 64-bit hashes of a split's records, uint64 [N] for each file.

    A record has the same hash in any dataset. Records that are equal but for the label have one
    hash.

    Raises:
      UserError: If the split is empty, or a file of hashes is missing, cannot be read or is not the
        one in the manifest.
      ConnectionError: If a store does not answer.
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
    """Compares every file of a split with its CRC-32C: records, their hashes and indexes.

    Args:
      manifest: Manifest of the dataset.
      data_dir: Its directory, local or in a bucket.
      split: Name of the split.
      alive: Function to call after each file, in any of several threads.

    Raises:
      UserError: If the split is empty, or a file is missing, cannot be read or is not the one in
        the manifest; the message names the first.
      ConnectionError: If a store does not answer.
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
    """Compares size and beginning (64 KiB) of each shard's TFRecord file with the manifest.

    This finds files of another conversion that have the same name.

    Args:
      data_dir: Directory of the dataset, local or in a bucket.
      shards: Shards of the manifest to check.

    Raises:
      UserError: If a file is missing, cannot be read or is another one; the message names the
        first.
      ConnectionError: If a store does not answer.
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
