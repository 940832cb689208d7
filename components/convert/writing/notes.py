"""What is done of a conversion: a small JSON file for each piece, whole or not at all.

    notes = Notes("data/mnist/.converting")       # or gs://bucket/...
    notes.put("piece-00003", {...})
    notes.get("piece-00003")

A conversion that leaves nothing has `Notes(None)`, which keeps nothing.
"""

import json
import os
from collections.abc import Set
from typing import Any

from common.errors import reading, writable
from common.storage.files import list_folder, read_bytes, write_text


class Notes:
    """The notes in a directory of unfinished work."""

    def __init__(self, place: str | None):
        self.place = place
        self._folder = f"{place}/notes"  # apart from the parts of shards, of which there are many more to list

    @property
    def names(self) -> Set[str]:
        """Names of the notes."""
        files = list_folder(self._folder)[1] if self.place else ()
        # One of no bytes is of a machine that has lost its power.
        names = (os.path.basename(file.path) for file in files if file.num_bytes)
        return {name.removesuffix(".json") for name in names if name.endswith(".json")}

    def get(self, name: str) -> Any | None:
        """Returns what was noted under the name, if anything was."""
        text = read_bytes(self.path(name)) if self.place else None
        with reading(self.path(name), "delete it: what it notes is then done again"):
            return json.loads(text) if text else None

    def path(self, name: str) -> str:
        """Returns where it is noted."""
        return f"{self._folder}/{name}.json"

    def put(self, name: str, content: Any) -> Any:
        """Notes something; returns it as it will be read."""
        text = json.dumps(content)
        if self.place:
            with writable(f"--output {os.path.dirname(self.place)}"):
                write_text(self.path(name), text, durable=False)  # nor are the parts that it tells of
        return json.loads(text)
