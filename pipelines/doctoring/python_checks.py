"""Checks of the Python that runs this."""

import importlib.util
import pathlib
import re
import subprocess
import sys

from pipelines.doctoring.findings import FAILED, OK, Finding

ROOT = pathlib.Path(__file__).resolve().parents[2]


def python() -> Finding:
    """Whether the project supports this version."""
    declared = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    first, beyond = (int(minor) for minor in declared.groups())
    found = "{}.{}.{}, {}".format(*sys.version_info[:3], sys.executable)
    if (3, first) <= sys.version_info < (3, beyond):
        return Finding("python", OK, found)
    meaning = f"{found}; TensorFlow and the project are for 3.{first} to 3.{beyond - 1}"
    return Finding("python", FAILED, meaning, f"install one of these, then: make setup PYTHON=python3.{beyond - 1}")


def packages() -> Finding:
    """Whether this Python has the packages that the project declares, in versions that all of them allow."""
    if not all(map(importlib.util.find_spec, ("tensorflow", "kfp"))):
        meaning = f"the project's packages are not installed in {sys.executable}"
        return Finding("packages", FAILED, meaning, "make setup, then run this with .venv/bin/python")
    check = subprocess.run([sys.executable, "-m", "pip", "check"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if check.returncode:
        told = "; ".join(check.stdout.decode().splitlines()[:3])
        return Finding("packages", FAILED, told, "rm -rf .venv; make setup")
    return Finding("packages", OK, "all that are declared, and they agree with each other")
