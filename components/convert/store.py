"""Datasets that several runs share: the first run that needs a dataset converts it.

    with held(directory):
        manifest = ready(directory) or convert(Options(..., output=str(directory)))

Other runs that need the dataset at the same time wait.
"""

import contextlib
import functools
import os
import pathlib
import shutil

from common.errors import UserError
from common.locks import locked
from common.manifest import FILE, Manifest
from components.convert import output


def held(directory: pathlib.Path) -> contextlib.AbstractContextManager[int]:
    """Returns a context manager that holds the lock of one dataset.

    Runs convert or delete a dataset only while they hold its lock. On entering, it waits while
    another run holds it, and prints one line about that. It yields the descriptor of the lock file.

    Args:
      directory: Directory of the dataset. The folder above it is created at once, and on entering
        `<directory>.lock`, the lock file, beside the directory.

    Raises:
      OSError: If the folder or the lock file cannot be created.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    print_once = functools.cache(
        lambda: print(f"waiting for another run to convert {directory}", flush=True)
    )
    return locked(f"{directory}.lock", print_once)


def ready(directory: pathlib.Path) -> Manifest | None:
    """Returns the manifest of a dataset that is complete, and deletes what is not.

    A dataset is complete if its page is there, and its shards are there with the sizes that the
    manifest says; checksums are left to those who read the shards. The time of the directory is set
    to now, as that of its last use.

    Args:
      directory: Directory of the dataset.

    Returns:
      The manifest; None if there is no complete dataset. The directory is deleted then, unless it
      has an unfinished conversion, which can be continued.
    """
    with contextlib.suppress(UserError, OSError):
        manifest = Manifest.load(directory)
        shards = [shard for split in manifest.splits.values() for shard in split.shards]
        has_page = (directory / output.PAGE).exists()
        if has_page and all(
            (directory / shard.file).stat().st_size == shard.bytes for shard in shards
        ):
            os.utime(directory)
            return manifest
    if (directory / FILE).exists() or not (directory / output.WORK).is_dir():
        shutil.rmtree(directory, ignore_errors=True)
    return None
