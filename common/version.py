"""The version of this code, for logs, records and `--version`."""

import os


def code_version() -> str:
    """CODE_VERSION of an image, else the commit of this checkout (with `+` when it was changed), else the package's version."""
    # Every command imports this; few ask, and these imports take as long as all others of some.
    import importlib.metadata
    import subprocess

    if version := os.environ.get("CODE_VERSION"):
        return version
    git = [
        "git",
        "-C",
        os.path.dirname(__file__),
        "describe",
        "--always",
        "--dirty=+",
        "--abbrev=12",
    ]
    try:
        return subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return importlib.metadata.version("tfrecord-training-pipeline")
