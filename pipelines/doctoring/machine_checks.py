"""What this machine and its Python have to have; no account is needed for any of it."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from pipelines.doctoring.findings import FAILED, OK, WARNING, Finding

ROOT = pathlib.Path(__file__).resolve().parents[2]
_ANSWER_S = 20
_LEAST_GB, _ENOUGH_GB = 1, 5  # of the disk: a run of the digits takes 20 MB, the environment 2 GB
_ENOUGH_MEMORY_GB = 4  # two or three replicas of TensorFlow beside the pipeline


def checks() -> Iterator[Finding]:
    """All of them; what needs the packages is left out where these are not there."""
    yield python()
    installed = packages()
    yield installed
    if installed.status == OK:
        yield memory()
    yield disk()
    yield engine()


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


def memory() -> Finding:
    """Whether a cluster of processes fits."""
    from trainer.base.machine import available_bytes

    free_gb = available_bytes() / 1e9
    if free_gb >= _ENOUGH_MEMORY_GB:
        return Finding("memory", OK, f"{free_gb:.0f} GB are free")
    meaning = f"{free_gb:.1f} GB are free: the system may kill replicas, which then look as if they were preempted"
    return Finding(
        "memory", WARNING, meaning, "close other programs, or use --cluster clusters/local.yaml (one replica)"
    )


def disk() -> Finding:
    """Whether runs, and temporary files beside them, have room."""
    # Not what `tempfile` would choose: it goes on to another directory, without a word, where other programs fail.
    places = {str(ROOT): "runs and datasets", os.environ.get("TMPDIR") or "/tmp": "temporary files (TMPDIR)"}
    free_gb = {}
    for place, what in places.items():
        try:
            free_gb[place] = shutil.disk_usage(place).free / 1e9
            with tempfile.TemporaryFile(dir=place) as file:
                file.write(b"x" * 65536)
        except OSError as error:
            meaning = f"{place} cannot be written ({error.strerror}), where {what} go"
            return Finding("disk", FAILED, meaning, "free some of it, or make it yours")
    least = min(free_gb, key=free_gb.__getitem__)
    if free_gb[least] >= _ENOUGH_GB:
        return Finding("disk", OK, f"{free_gb[least]:.0f} GB are free")
    meaning = f"{free_gb[least]:.1f} GB are free in {least}, where {places[least]} go"
    repair = "free some: .venv/bin/python pipelines/runs.py delete --help; make clean"
    return Finding("disk", FAILED if free_gb[least] < _LEAST_GB else WARNING, meaning, repair)


def engine() -> Finding:
    """Whether containers can be run, which only `--runner docker`, `--backend docker` and `make image` need."""
    if not shutil.which("docker"):
        meaning = "no docker command: no images, and no steps or replicas in containers; processes need none"
        return Finding("docker", WARNING, meaning, "install Docker Engine (docs.docker.com/engine/install)")
    command = ["docker", "info", "--format", "{{.ServerVersion}}"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S)
        version, why = told.stdout.strip(), told.stderr.strip().splitlines()[-1:] or ["no version was told"]
    except (OSError, subprocess.TimeoutExpired) as error:
        version, why = "", [str(error)]
    # Some clients end with 0 though nothing answered, and tell it in the output's place.
    if version and version[0].isdigit():
        return Finding("docker", OK, f"engine {version}")
    repair = "start the engine, or let this user ask it: sudo usermod -aG docker $USER, and log in again"
    return Finding("docker", WARNING, f"the engine does not answer ({why[0]})", repair)
