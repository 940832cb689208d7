"""Sources that lie in a bucket."""

from __future__ import annotations

import hashlib
import re

from trainer.base.errors import UserError

_SOURCE = re.compile(r"gs://(?P<bucket>[^/]+)/(?P<prefix>.*?)/?")


def mounted(source: str) -> str:
    """Where a step on Vertex AI finds `gs://BUCKET/DIR`: below `/gcs`.

    Raises:
      UserError: If `source` is not in a bucket.
    """
    if not (match := _SOURCE.fullmatch(source)):
        raise UserError(f"--source {source}: steps on Vertex AI read buckets; upload it and give gs://BUCKET/DIR")
    return f"/gcs/{match['bucket']}/{match['prefix']}"


def bucket_digest(source: str) -> str:
    """SHA-256 (hexadecimal) over names, sizes and checksums of the objects below `gs://BUCKET/DIR`.

    Raises:
      UserError: If `source` is not in a bucket, cannot be listed, or is empty.
    """
    mounted(source)
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud import storage  # 1 s

    match = _SOURCE.fullmatch(source)
    try:
        blobs = list(storage.Client().list_blobs(match["bucket"], prefix=f"{match['prefix']}/"))
    except (GoogleAPICallError, GoogleAuthError, OSError) as error:
        raise UserError(f"--source {source} cannot be listed: {error}") from None
    if not blobs:
        raise UserError(f"--source {source}: there is nothing")
    lines = sorted(f"{blob.name}\0{blob.size}\0{blob.crc32c}\n" for blob in blobs)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
