"""Datasets that several runs share: each is converted once, by whoever needs it first.

with held(directory):
    manifest = ready(directory) or convert(Options(..., output=str(directory)))
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
    """Keeps others from converting, or deleting, a dataset of the store; waits as long as they do."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    print_once = functools.cache(
        lambda: print(f"waiting for another run to convert {directory}", flush=True)
    )
    return locked(f"{directory}.lock", print_once)


def ready(directory: pathlib.Path) -> Manifest | None:
    """Returns the dataset if it is complete, and notes its use; anything else is deleted, but for work that can go on.

    Names and sizes tell; whoever reads a shard compares its checksum.
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
