"""Sources that lie in a bucket."""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from trainer.base.errors import UserError

_SOURCE = re.compile(r"gs://(?P<bucket>[^/]+)/?(?P<name>.*?)/?")


def mounted(source: str) -> str:
    """Where a step on Vertex AI finds `gs://BUCKET/DIR`, or a file: below `/gcs`.

    Raises:
      UserError: If `source` is not in a bucket.
    """
    if not (match := _SOURCE.fullmatch(source)):
        raise UserError(f"--source {source}: steps on Vertex AI read buckets; upload it and give gs://BUCKET/DIR")
    return f"/gcs/{match['bucket']}/{match['name']}"


def bucket_digest(sources: Sequence[str]) -> str:
    """SHA-256 (hexadecimal) over names, sizes and checksums of the objects that `gs://BUCKET/DIR_OR_FILE` are.

    Raises:
      UserError: If one of them is not in a bucket, cannot be listed, or is empty.
    """
    digest = hashlib.sha256()
    for source in sources:
        mounted(source)
        match = _SOURCE.fullmatch(source)
        blobs = _blobs(match["bucket"], match["name"], f"--source {source}")
        # A prefix fits more than the file, or the folder, of that name: `data-old/` and `data.csv.bak` too.
        folder = match["name"] and f"{match['name']}/"
        named = [blob for blob in blobs if f"{blob.name}/".startswith(folder)]
        if not named:
            raise UserError(f"--source {source}: there is nothing")
        for line in sorted(f"{blob.name}\0{blob.size}\0{blob.crc32c}\n" for blob in named):
            digest.update(line.encode())
    return digest.hexdigest()


def unfinished_step(job_dir: str) -> int:
    """Step of the newest checkpoint in a job directory in a bucket; -1 if there is none, or the training is done.

    Raises:
      UserError: If it cannot be listed.
    """
    bucket, _, folder = job_dir.removeprefix("gs://").partition("/")
    names = [blob.name.removeprefix(f"{folder}/") for blob in _blobs(bucket, f"{folder}/", job_dir)]
    found = [match for match in map(re.compile(r"checkpoints/ckpt-(\d+)\.index").fullmatch, names) if match]
    return -1 if "DONE.json" in names else max((int(match[1]) for match in found), default=-1)


def decision(job_dir: str) -> dict[str, Any]:
    """What the evaluation that lies in a job directory in a bucket has decided.

    Raises:
      UserError: If it cannot be read.
    """
    bucket, _, folder = job_dir.removeprefix("gs://").partition("/")
    with _told(job_dir):
        from google.cloud import storage

        return json.loads(storage.Client().bucket(bucket).blob(f"{folder}/evaluation.json").download_as_bytes())[
            "decision"
        ]


def _blobs(bucket: str, prefix: str, place: str) -> list[Any]:
    with _told(place):
        from google.cloud import storage  # 1 s

        return list(storage.Client().list_blobs(bucket, prefix=prefix))


@contextlib.contextmanager
def _told(place: str) -> Iterator[None]:
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError

    try:
        yield
    except (GoogleAPICallError, GoogleAuthError, OSError) as error:
        raise UserError(f"{place} cannot be read: {error}") from None
