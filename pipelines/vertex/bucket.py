"""What a run keeps in its bucket, as the machine that submitted it reads and writes it."""

import json
import re
from collections.abc import Mapping
from typing import Any

from common.errors import UserError
from common.storage.bucket import connect

RECORD = "run.json"  # in a run's directory: what was submitted
_TAIL_BYTES = 65_536
_LOOKED_AT = 20


def reached(source: str) -> str:
    """The same `gs://BUCKET/DIR`, or a file; a `UserError` if it is none, which no step on Vertex AI could read."""
    if not re.match("gs://[^/]", source):
        raise UserError(f"--source {source}: steps on Vertex AI read buckets; upload it and give gs://BUCKET/DIR")
    return source.rstrip("/")


def read_json(place: str) -> dict[str, Any]:
    """The content of an object, `gs://BUCKET/NAME`."""
    with connect(place) as (bucket, name):
        return json.loads(bucket.blob(name).download_as_bytes())


def write_json(place: str, content: dict[str, Any]) -> None:
    """Makes or replaces an object."""
    with connect(place) as (bucket, name):
        bucket.blob(name).upload_from_string(json.dumps(content, indent=1) + "\n", content_type="application/json")


def newest_step(job_dir: str) -> dict[str, Any]:
    """The newest line `step` or `evaluation` that the chief's journals of a job in a bucket have; empty if there is none."""
    with connect(job_dir) as (bucket, folder):
        journals = sorted(bucket.list_blobs(prefix=f"{folder}/journal-chief-0-"), key=lambda blob: blob.updated)
        for blob in reversed(journals):
            tail = bucket.blob(blob.name).download_as_bytes(start=max(0, blob.size - _TAIL_BYTES))
            text = tail.decode(errors="replace")
            for line in reversed(text.splitlines()):
                if re.search(r'"event": "(step|evaluation)"', line) and line.startswith("{") and line.endswith("}"):
                    return json.loads(line)
    return {}


def like(bucket: str, values: Mapping[str, Any]) -> tuple[str, float] | None:
    """The newest run of a bucket that has trained the same on the same cluster, and its seconds; None if none of the last has."""
    with connect(f"{bucket}/runs/") as (store, folder):
        listing = store.list_blobs(prefix=folder, delimiter="/")
        list(listing)
        for run in sorted(listing.prefixes, reverse=True)[:_LOOKED_AT]:
            record, done = store.get_blob(f"{run}{RECORD}"), store.get_blob(f"{run}job/DONE.json")
            if not (record and done):
                continue
            known = json.loads(store.blob(record.name).download_as_bytes())["job"]["parameter_values"]
            if all(known.get(name) == values[name] for name in ("cluster", "trainer_args", "convert_args", "name")):
                return run.split("/")[-2], json.loads(store.blob(done.name).download_as_bytes())["seconds"]
    return None
