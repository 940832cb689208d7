"""Sources that lie in a bucket: what is there, without reading it."""

import re
from collections.abc import Sequence

from components.convert.sources.base import digest_of
from components.files.listing import File, listed
from trainer.base.errors import UserError


def digest_of_objects(sources: Sequence[str]) -> str:
    """SHA-256 (hexadecimal) over names, sizes and checksums of the objects that a folder or file of a bucket is.

    Sources are `gs://BUCKET/NAME`, or the same below `/gcs`, as a step on Vertex AI sees it.

    Raises:
      UserError: If there is nothing at one, or it cannot be listed.
    """
    files = [file for source in sources for file in objects(source)]
    return digest_of((file.path.split("/", 3)[3], f"{file.num_bytes}\0{file.crc32c}") for file in files)


def objects(source: str) -> list[File]:
    """The files that a folder or file of a bucket is, in order."""
    place = re.sub("^/gcs/", "gs://", source.rstrip("/"))
    if not (found := listed(place)):
        raise UserError(f"--source {place}: there is nothing")
    return found
