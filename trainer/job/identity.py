"""Record of a job's first start, `job.json`, by which other settings are refused on resuming.

Imports no TensorFlow.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from common.errors import UserError
from common.storage.files import parsed_json, write_text

FILE = "job.json"
_MAPPINGS = ("identity", "settings", "replicas", "arguments", "versions")
# Settings that are not compared, since the first start or the machine decides them.
_NOT_COMPARED = {"batch_size", "horizon_steps", "precision"}


def first_start(job_dir: str) -> dict[str, Any]:
    """Returns the record of the job's first start, `job.json`; empty if there is none.

    Raises:
      UserError: If the file cannot be used.
      ConnectionError: If a store does not answer.
    """
    with parsed_json(os.path.join(job_dir, FILE)) as content:
        if content is None:
            return {}
        return content | {
            key: dict(content[key]) for key in _MAPPINGS if key == "identity" or key in content
        }


def begin(job_dir: str, record: Mapping[str, Any], *, write: bool) -> dict[str, Any]:
    """Returns the record of the job's first start, `job.json`, or `record` if this is the first.

    Keys that the record of the first start lacks are taken from `record`.

    Args:
      job_dir: Directory of the job.
      record: Record of this start, with `settings`.
      write: Writes the record if this is the first start. Only the chief does, since a store allows
        one write of an object per second.

    Raises:
      UserError: If the job began with other `settings` (batch size, schedule's length and precision
        are not compared), such as another constant in the model's module, or if the file cannot be
        used.
      OSError: If the file cannot be written, or a store does not answer.
    """
    recorded = first_start(job_dir)
    before = {**record, **recorded}
    if write and not recorded:
        write_text(os.path.join(job_dir, FILE), json.dumps(before, indent=1, sort_keys=True) + "\n")
    names = record["settings"].keys() - _NOT_COMPARED
    _compare(
        job_dir,
        *({name: start["settings"].get(name) for name in names} for start in (before, record)),
    )
    return before


def check(job_dir: str, identity: Mapping[str, Any]) -> None:
    """Checks that the job directory, if it is in use, was started with the same `identity`.

    It is in use if it has a `job.json`.

    Raises:
      UserError: If it was not (the message names every difference), or the file cannot be used.
      ConnectionError: If a store does not answer.
    """
    _compare(job_dir, first_start(job_dir).get("identity", identity), identity)


def _compare(job_dir: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    before, now = (json.loads(json.dumps(dict(values))) for values in (before, now))
    keys = sorted(before.keys() | now.keys())
    differences = [
        f"{k}: {before.get(k)!r} -> {now.get(k)!r}" for k in keys if before.get(k) != now.get(k)
    ]
    if differences:
        raise UserError(
            f"{job_dir} was started with other settings ({'; '.join(differences)}); use them, or "
            "another --job-dir"
        )


def facts(job_dir: str) -> dict[str, Any]:
    """Returns how a job's model was made; empty if this is no job's directory.

    The keys are `settings`, with all defaults filled in, `replicas` by role, and `versions` of
    packages, those that `job.json` has.

    Raises:
      UserError: If the file cannot be used.
      ConnectionError: If a store does not answer.
    """
    record = first_start(job_dir)
    return {key: record[key] for key in ("settings", "replicas", "versions") if key in record}


def trained_on(job_dir: str) -> tuple[str, Mapping[str, Any]] | None:
    """Returns the name of a job's dataset and the arguments of its conversion.

    Returns None if this is no job's directory, that is, has no `job.json`.

    Raises:
      UserError: If the file cannot be used.
      ConnectionError: If a store does not answer.
    """
    record = first_start(job_dir)
    return (record["identity"]["dataset"], record.get("arguments", {})) if record else None
