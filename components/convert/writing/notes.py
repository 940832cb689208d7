"""What the stages of a conversion leave for each other: a small JSON file each, whole or not at all.

    notes = Notes("data/mnist/.converting")       # or gs://bucket/...
    notes.put("piece-00003", {...})
    notes.get("piece-00003")

A conversion that leaves nothing has `Notes(None)`, which are in memory.
"""

import json
import os
from collections.abc import Set
from typing import Any

from components.files.listing import inside
from components.files.reading import whole
from components.files.writing import written
from trainer.base.errors import writable


class Notes:
    """The notes in a directory of unfinished work."""

    def __init__(self, place: str | None):
        self.place, self._known = place, {}
        self._folder = f"{place}/notes"  # apart from the parts of shards, of which there are many more to list

    @property
    def names(self) -> Set[str]:
        """Of those that there are."""
        there = inside(self._folder)[1] if self.place else ()
        # One of no bytes is of a machine that has lost its power.
        names = (os.path.basename(file.path) for file in there if file.num_bytes)
        return {name.removesuffix(".json") for name in names if name.endswith(".json")} | self._known.keys()

    def get(self, name: str) -> Any | None:
        """What was noted under the name, if anything was."""
        if self.place and name not in self._known and (text := whole(self.path(name))):
            return json.loads(text)
        return self._known.get(name)

    def path(self, name: str) -> str:
        """Where it is noted."""
        return f"{self._folder}/{name}.json"

    def keep(self, name: str, content: Any) -> None:
        """Remembers what another process has noted."""
        self._known[name] = content

    def put(self, name: str, content: Any) -> Any:
        """Notes something; returns it as it will be read."""
        text = json.dumps(content)
        if self.place:
            with writable(f"--output {os.path.dirname(self.place)}"):
                written(self.path(name), text, durable=False)  # nor are the parts that it tells of
        self.keep(name, json.loads(text))
        return self._known[name]
