"""What a run keeps in its bucket, as the machine that submitted it reads and writes it."""

import json
import re
from typing import Any

from components.bucket import opened
from trainer.base.errors import UserError

RECORD = "run.json"  # in a run's directory: what was submitted, and what became of it
_TAIL_BYTES = 65_536


def mounted(source: str) -> str:
    """Where a step on Vertex AI finds `gs://BUCKET/DIR`, or a file: below `/gcs`."""
    if not re.match("gs://[^/]", source):
        raise UserError(f"--source {source}: steps on Vertex AI read buckets; upload it and give gs://BUCKET/DIR")
    return f"/gcs/{source.removeprefix('gs://').rstrip('/')}"


def read_json(place: str) -> dict[str, Any]:
    """The content of an object, `gs://BUCKET/NAME`."""
    with opened(place) as (bucket, name):
        return json.loads(bucket.blob(name).download_as_bytes())


def write_json(place: str, content: dict[str, Any]) -> None:
    """Makes or replaces an object."""
    with opened(place) as (bucket, name):
        bucket.blob(name).upload_from_string(json.dumps(content, indent=1) + "\n", content_type="application/json")


def newest_step(job_dir: str) -> dict[str, Any]:
    """The newest line `step` or `evaluation` that the chief's journals of a job in a bucket have; empty if there is none."""
    with opened(job_dir) as (bucket, folder):
        journals = sorted(bucket.list_blobs(prefix=f"{folder}/journal-chief-0-"), key=lambda blob: blob.updated)
        for blob in reversed(journals):
            tail = bucket.blob(blob.name).download_as_bytes(start=max(0, blob.size - _TAIL_BYTES))
            text = tail.decode(errors="replace")
            for line in reversed(text.splitlines()):
                if re.search(r'"event": "(step|evaluation)"', line) and line.startswith("{") and line.endswith("}"):
                    return json.loads(line)
    return {}
