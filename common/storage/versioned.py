"""An object in a bucket that several machines write, each only over the version that it knows.

file = VersionedObject("gs://bucket/launcher.lock")
file.write(b"mine")      # whether it did; not if the object is there already
file.read(4096)          # b"mine"; what `write` then replaces is this version
"""

import dataclasses
from typing import Any

from common.storage.store import asked


@dataclasses.dataclass
class VersionedObject:
    """An object with this address, and the generation that was read or written last; 0 if there is none."""

    place: str
    generation: int = 0

    def read(self, most_bytes: int) -> bytes:
        """Returns the content; it is empty if there is no object, or a larger one."""
        from google.api_core.exceptions import NotFound

        with asked(self.place) as (bucket, name):
            blob = bucket.get_blob(name)
            self.generation = blob.generation if blob else 0
            if not blob or blob.size > most_bytes:
                return b""
            try:
                return bucket.blob(name, generation=blob.generation).download_as_bytes()
            except NotFound:  # It was replaced meanwhile.
                return self.read(most_bytes)

    def write(self, content: bytes, **options: Any) -> bool:
        """Replaces the known version, or deletes it if the content is empty; returns False if the object has another."""
        from google.api_core.exceptions import PreconditionFailed

        known = self.generation
        options |= {"if_generation_match": known}
        with asked(self.place) as (bucket, name):
            blob = bucket.blob(name)
            try:
                if content:
                    blob.upload_from_string(content, "application/json", **options)
                else:
                    blob.delete(**options)
                self.generation = blob.generation if content else 0
                return True
            except PreconditionFailed:
                # Of a request that was sent again the first answer may have been lost.
                if content and self.read(len(content)) == content:
                    return True
        self.generation = known
        return False
