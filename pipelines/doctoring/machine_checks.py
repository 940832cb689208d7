"""What this machine and its Python have to have; no account is needed for any of it."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator

from pipelines.doctoring.findings import FAILED, OK, WARNING, Finding

ROOT = pathlib.Path(__file__).resolve().parents[2]
_ENOUGH_GB = 5  # of the disk: a run of the digits takes 20 MB, the environment 2 GB
_ENOUGH_MEMORY_GB = 4  # two or three replicas of TensorFlow beside the pipeline


def checks() -> Iterator[Finding]:
    """All of them; what needs the packages is left out where these are not there."""
    yield python()
    installed = packages()
    yield installed
    if installed.status == OK:
        yield memory()
    yield disk()


def python() -> Finding:
    """Checks that the project supports this version."""
    declared = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    first, beyond = (int(minor) for minor in declared.groups())
    found = "{}.{}.{}, {}".format(*sys.version_info[:3], sys.executable)
    if (3, first) <= sys.version_info < (3, beyond):
        return Finding("python", OK, found)
    meaning = f"{found}; TensorFlow and the project are for 3.{first} to 3.{beyond - 1}"
    return Finding("python", FAILED, meaning, f"install one of these, then: make setup PYTHON=python3.{beyond - 1}")


def packages() -> Finding:
    """Checks that this Python has the project's packages."""
    if all(map(importlib.util.find_spec, ("tensorflow", "kfp"))):
        return Finding("packages", OK, "installed")
    meaning = f"the project's packages are not installed in {sys.executable}"
    return Finding("packages", FAILED, meaning, "make setup, then run this with .venv/bin/python")


def memory() -> Finding:
    """Checks that a cluster of processes fits."""
    from common.machine import available_bytes

    free_gb = available_bytes() / 1e9
    meaning = f"{free_gb:.1f} GB are free"
    if free_gb >= _ENOUGH_MEMORY_GB:
        return Finding("memory", OK, meaning)
    return Finding("memory", WARNING, f"{meaning}: the system may kill replicas", "use --cluster clusters/local.yaml")


def disk() -> Finding:
    """Checks that runs, and temporary files beside them, have room."""
    # Not what `tempfile` would choose: it goes on to another directory, without a word, where other programs fail.
    free_gb = {}
    for place in (str(ROOT), os.environ.get("TMPDIR") or "/tmp"):
        try:
            free_gb[place] = shutil.disk_usage(place).free / 1e9
            with tempfile.TemporaryFile(dir=place) as file:
                file.write(b"x" * 65536)
        except OSError as error:
            return Finding(
                "disk", FAILED, f"{place} cannot be written ({error.strerror})", "free some, or make it yours"
            )
    least = min(free_gb, key=free_gb.__getitem__)
    meaning = f"{free_gb[least]:.1f} GB are free in {least}"
    if free_gb[least] >= _ENOUGH_GB:
        return Finding("disk", OK, meaning)
    return Finding("disk", WARNING, meaning, "free some: .venv/bin/python pipelines/runs.py delete --help; make clean")
