"""Sources that lie in a bucket: what is there, without reading it."""

import re
from collections.abc import Sequence
from typing import Any

from components.bucket import opened
from components.convert.sources.base import digest_of
from trainer.base.errors import UserError


def digest_of_objects(sources: Sequence[str]) -> str:
    """SHA-256 (hexadecimal) over names, sizes and checksums of the objects that a folder or file of a bucket is.

    Sources are `gs://BUCKET/NAME`, or the same below `/gcs`, as a step on Vertex AI sees it.

    Raises:
      UserError: If there is nothing at one, or it cannot be listed.
    """
    return digest_of((blob.name, f"{blob.size}\0{blob.crc32c}") for source in sources for blob in objects(source))


def objects(source: str) -> list[Any]:
    """The objects (`google.cloud.storage.Blob`) that a folder or file of a bucket is, in order."""
    place = re.sub("^/gcs/", "gs://", source.rstrip("/"))
    with opened(place) as (bucket, name):
        blobs = list(bucket.list_blobs(prefix=name))
    # A prefix fits more than the file, or the folder, of that name: `data-old/` and `data.csv.bak` too.
    found = sorted((b for b in blobs if f"{b.name}/".startswith(name and f"{name}/")), key=lambda blob: blob.name)
    if not found:
        raise UserError(f"--source {place}: there is nothing")
    return found
