"""Puts a finished dataset into a mounted bucket, where files cannot be locked or renamed as on a disk."""

from __future__ import annotations

import pathlib
import shutil

from components.convert.writing import output
from trainer.base import manifest


def publish(directory: pathlib.Path, destination: pathlib.Path) -> None:
    """Copies a dataset, its manifest last: until then the destination is no finished dataset.

    What an earlier attempt left there is deleted, and a failure leaves nothing.
    """
    destination.mkdir(parents=True, exist_ok=True)
    output.discard(destination)
    try:
        for path in sorted(directory.iterdir(), key=lambda path: path.name == manifest.FILE):
            shutil.copyfile(path, destination / path.name)
    except BaseException:
        output.discard(destination)
        raise
