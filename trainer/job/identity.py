"""`job.json`: what a job directory is for. Resuming it for something else is refused. Imports no TensorFlow."""

import contextlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from typing import Any

from common.errors import UserError, reading
from common.storage.files import make_directory, read_bytes, stated, write_text

FILE = "job.json"
_PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "numpy")


def check(job_dir: str, identity: Mapping[str, Any]) -> None:
    """Refuses another `identity` than the job directory was started with, if it was, and names every difference."""
    with stated(os.path.join(job_dir, FILE)) as content:
        if content is None:
            return
        before = dict(content["identity"])
    _compare(job_dir, before, identity)


def check_settings(job_dir: str, settings: Mapping[str, Any]) -> None:
    """Refuses other settings than the job began with, such as another constant of the model's module.

    Not compared is what the first start has decided, and what the machine decides.
    """
    with stated(os.path.join(job_dir, FILE)) as content:
        before = dict((content or {}).get("settings", settings))
    names = settings.keys() - {"batch_size", "horizon_steps", "precision"}
    _compare(job_dir, {name: before.get(name) for name in names}, {name: settings[name] for name in names})


def _compare(job_dir: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    before, now = (json.loads(json.dumps(dict(values))) for values in (before, now))
    keys = sorted(before.keys() | now.keys())
    differences = [f"{k}: {before.get(k)!r} -> {now.get(k)!r}" for k in keys if before.get(k) != now.get(k)]
    if differences:
        raise UserError(
            f"{job_dir} was started with other settings ({'; '.join(differences)}); use them, or another --job-dir"
        )


def claim(job_dir: str, identity: Mapping[str, Any]) -> None:
    """Writes `job.json` at the first start, with the versions that ran; they are not compared."""
    path = os.path.join(job_dir, FILE)
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    content = json.dumps({"identity": dict(identity), "versions": versions}, indent=1, sort_keys=True)
    with reading(f"--job-dir {job_dir}", "use another"):
        make_directory(job_dir)
        if read_bytes(path) is None:
            write_text(path, content + "\n")


def settle(job_dir: str, values: Mapping[str, Any], *, write: bool) -> dict[str, Any]:
    """Values that follow from the first start and hold for all: what was written then, or these from now on."""
    with stated(os.path.join(job_dir, FILE)) as content:
        content = dict(content)
    if write and not values.keys() <= content.keys():
        write_text(os.path.join(job_dir, FILE), json.dumps({**values, **content}, indent=1, sort_keys=True) + "\n")
    return {name: content.get(name, value) for name, value in values.items()}


def facts(job_dir: str) -> dict[str, Any]:
    """What made a job's model: its `settings`, resolved; its `replicas` by role, and `versions` of packages, at the first start.

    Nothing if this is no job's directory.
    """
    with stated(os.path.join(job_dir, FILE)) as content:
        return {key: content[key] for key in ("settings", "replicas", "versions") if key in (content or {})}


def trained_on(job_dir: str) -> tuple[str, Mapping[str, Any]] | None:
    """Name of the dataset of a job, and arguments of its conversion; None if this is no job's directory."""
    with stated(os.path.join(job_dir, FILE)) as content:
        return None if content is None else (content["identity"]["dataset"], dict(content.get("arguments", {})))
