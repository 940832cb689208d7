"""Datasets that several runs share: the first run that needs a dataset converts it.

    with held(directory):
        manifest = ready(directory) or convert(Options(..., output=directory))

Other runs that need the dataset at the same time wait. In a bucket, which has no locks, they
convert it too, to the same bytes.
"""

import contextlib
import functools
import os

from common.errors import UserError
from common.locks import locked
from common.manifest import FILE, Manifest
from common.storage.files import delete_files, list_files, list_folder
from common.storage.storage import is_remote
from components.convert import output


def held(directory: str) -> contextlib.AbstractContextManager[int | None]:
    """Returns a context manager that holds the lock of one dataset.

    Runs convert or delete a dataset only while they hold its lock. On entering, it waits while
    another run holds it, and prints one line about that. It yields the descriptor of the lock file,
    or None in a bucket.

    Args:
      directory: Directory of the dataset. The folder above it is created at once, and on entering
        `<directory>.lock`, the lock file, beside the directory.

    Raises:
      OSError: If the folder or the lock file cannot be created.
    """
    if is_remote(directory):
        return contextlib.nullcontext()
    os.makedirs(os.path.dirname(directory), exist_ok=True)
    print_once = functools.cache(
        lambda: print(f"waiting for another run to convert {directory}", flush=True)
    )
    return locked(f"{directory}.lock", print_once)


def ready(directory: str) -> Manifest | None:
    """Returns the manifest of a dataset that is complete, and deletes what is not.

    A dataset is complete if its page is there, and its shards are there with the sizes that the
    manifest says; checksums are left to those who read the shards. The time of a local directory is
    set to now, as that of its last use.

    Args:
      directory: Directory of the dataset.

    Returns:
      The manifest; None if there is no complete dataset. Its files are deleted then, unless they
      are of an unfinished conversion, which can be continued.

    Raises:
      ConnectionError: If a store does not answer.
    """
    folders, files = list_folder(directory)
    num_bytes = {os.path.basename(file.path): file.num_bytes for file in files}
    with contextlib.suppress(UserError):
        manifest = Manifest.load(directory)
        if output.PAGE in num_bytes and all(
            num_bytes.get(shard.file) == shard.bytes for shard in manifest.shards
        ):
            if not is_remote(directory):
                os.utime(directory)
            return manifest
    if FILE in num_bytes or f"{directory}/{output.WORK}" not in folders:
        delete_files(file.path for file in list_files(directory))
    return None
