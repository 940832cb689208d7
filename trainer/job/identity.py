"""`job.json`: what a job directory is for. Resuming it for something else is refused. Imports no TensorFlow."""

import contextlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from typing import Any

from common.errors import UserError
from common.storage.files import parsed_json, write_text

FILE = "job.json"
_MAPPINGS = ("identity", "settings", "replicas", "arguments", "versions")
_PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "numpy")


def first_start(job_dir: str) -> dict[str, Any]:
    """Returns what the job's first start has written down; nothing before it, or if this is no job's directory."""
    with parsed_json(os.path.join(job_dir, FILE)) as content:
        if content is None:
            return {}
        return content | {key: dict(content[key]) for key in _MAPPINGS if key == "identity" or key in content}


def begin(job_dir: str, record: Mapping[str, Any], *, write: bool) -> dict[str, Any]:
    """Returns what holds for all starts: what the first one has written down, or this `record`.

    With `write` it is written down now, once: a store takes one write a second to an object. With it go the versions that
    ran, which are not compared.
    """
    before = first_start(job_dir)
    if write and not record.keys() <= before.keys():
        versions = {"python": platform.python_version()}
        for package in _PACKAGES:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[package] = importlib.metadata.version(package)
        content = {**record, "versions": versions, **before}
        write_text(os.path.join(job_dir, FILE), json.dumps(content, indent=1, sort_keys=True) + "\n")
    return {**record, **before}


def check(job_dir: str, identity: Mapping[str, Any]) -> None:
    """Refuses another `identity` than the job directory was started with, if it was, and names every difference."""
    _compare(job_dir, first_start(job_dir).get("identity", identity), identity)


def check_settings(job_dir: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuses other settings than the job began with, such as another constant of the model's module.

    Not compared is what the first start has decided, and what the machine decides.
    """
    names = now.keys() - {"batch_size", "horizon_steps", "precision"}
    _compare(job_dir, {name: before.get(name) for name in names}, {name: now[name] for name in names})


def _compare(job_dir: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    now = json.loads(json.dumps(dict(now)))
    before = json.loads(json.dumps(dict(before)))
    keys = sorted(before.keys() | now.keys())
    differences = [f"{k}: {before.get(k)!r} -> {now.get(k)!r}" for k in keys if before.get(k) != now.get(k)]
    if differences:
        raise UserError(
            f"{job_dir} was started with other settings ({'; '.join(differences)}); use them, or another --job-dir"
        )


def facts(job_dir: str) -> dict[str, Any]:
    """Returns what made a job's model: its `settings`, resolved; `replicas` by role, and `versions` of packages."""
    record = first_start(job_dir)
    return {key: record[key] for key in ("settings", "replicas", "versions") if key in record}


def trained_on(job_dir: str) -> tuple[str, Mapping[str, Any]] | None:
    """Returns the name of a job's dataset and the arguments of its conversion; None if this is no job's directory."""
    record = first_start(job_dir)
    dataset = record.get("identity", {}).get("dataset")
    return None if dataset is None else (dataset, record.get("arguments", {}))
