"""What the stages of a conversion leave for each other: a small JSON file each, whole or not at all.

    notes = Notes("data/mnist/.converting")       # or gs://bucket/...
    notes.put("piece-00003", {...})
    notes.get("piece-00003")

A conversion that leaves nothing has `Notes(None)`.
"""

import json
from collections.abc import Set
from typing import Any

from components.files.listing import found, listed
from components.files.reading import opened
from components.files.writing import created


class Notes:
    """The notes in a directory of unfinished work."""

    def __init__(self, place: str | None):
        self.place = place

    @property
    def names(self) -> Set[str]:
        """Of those that there are."""
        files = listed(self.place) if self.place else []
        return {file.path.rpartition("/")[2].removesuffix(".json") for file in files if file.path.endswith(".json")}

    def get(self, name: str) -> Any | None:
        """What was noted under the name, if anything was."""
        file = found(f"{self.place}/{name}.json") if self.place else None
        return json.load(opened(file)) if file else None

    def put(self, name: str, content: Any) -> Any:
        """Notes something; returns it as it will be read."""
        text = json.dumps(content)
        if self.place:
            with created(f"{self.place}/{name}.json") as file:
                file.write(text.encode())
        return json.loads(text)
