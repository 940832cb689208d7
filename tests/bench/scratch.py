"""Where contestants write."""

from __future__ import annotations

import atexit
import pathlib
import shutil
import tempfile


def scratch() -> pathlib.Path:
    """A new directory that ends with the program."""
    root = pathlib.Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root
