"""The version of this code, for logs, records and `--version`."""

import os


def code_version() -> str:
    """Returns the version of the running code.

    This is the environment variable CODE_VERSION (images set it); otherwise the tag or commit of
    this checkout by `git describe`, with `+` if files were changed; otherwise the version of the
    installed package.
    """
    # Every command imports this module, and few call the function. These imports would double the
    # start time of the fastest commands.
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
