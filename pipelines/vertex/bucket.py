"""Sources that lie in a bucket."""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from components.bucket import opened
from trainer.base.errors import UserError


def mounted(source: str) -> str:
    """Where a step on Vertex AI finds `gs://BUCKET/DIR`, or a file: below `/gcs`."""
    if not re.match("gs://[^/]", source):
        raise UserError(f"--source {source}: steps on Vertex AI read buckets; upload it and give gs://BUCKET/DIR")
    return f"/gcs/{source.removeprefix('gs://').rstrip('/')}"


def bucket_digest(sources: Sequence[str]) -> str:
    """SHA-256 (hexadecimal) over names, sizes and checksums of the objects that `gs://BUCKET/DIR_OR_FILE` are."""
    digest = hashlib.sha256()
    for source in sources:
        mounted(source)  # refuses what is elsewhere
        with opened(source.rstrip("/")) as (bucket, name):
            blobs = list(bucket.list_blobs(prefix=name))
        # A prefix fits more than the file, or the folder, of that name: `data-old/` and `data.csv.bak` too.
        named = [blob for blob in blobs if f"{blob.name}/".startswith(name and f"{name}/")]
        if not named:
            raise UserError(f"--source {source}: there is nothing")
        for line in sorted(f"{blob.name}\0{blob.size}\0{blob.crc32c}\n" for blob in named):
            digest.update(line.encode())
    return digest.hexdigest()


def require_bucket(place: str) -> None:
    """Refuses a place in a bucket that is not there: Google's client would make one, even of a name that was misspelt."""
    with opened(place) as (bucket, _):
        if not bucket.exists():
            raise UserError(f"no bucket {bucket.name}; make it: gcloud storage buckets create gs://{bucket.name}")


def unfinished_step(job_dir: str) -> int:
    """Step of the newest checkpoint in a job directory in a bucket; -1 if there is none, or the training is done."""
    with opened(job_dir) as (bucket, folder):
        names = [blob.name.removeprefix(f"{folder}/") for blob in bucket.list_blobs(prefix=f"{folder}/")]
    found = [match for match in map(re.compile(r"checkpoints/ckpt-(\d+)\.index").fullmatch, names) if match]
    return -1 if "DONE.json" in names else max((int(match[1]) for match in found), default=-1)


def decision(job_dir: str) -> dict[str, Any]:
    """What the evaluation that lies in a job directory in a bucket has decided."""
    with opened(job_dir) as (bucket, folder):
        return json.loads(bucket.blob(f"{folder}/evaluation.json").download_as_bytes())["decision"]
