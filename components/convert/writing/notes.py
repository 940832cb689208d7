"""What the stages of a conversion leave for each other: a small JSON file each, whole or not at all.

    notes = Notes(place)
    notes.put("piece-00003", {...})
    notes.get("piece-00003")

A conversion that leaves nothing has `Notes(None)`.
"""

import json
import pathlib
from collections.abc import Set
from typing import Any

from trainer.base.files import write_text


class Notes:
    """The notes in a directory of unfinished work."""

    def __init__(self, place: pathlib.Path | None):
        self.place = place

    @property
    def names(self) -> Set[str]:
        """Of those that there are."""
        return {path.stem for path in self.place.glob("*.json")} if self.place else set()

    def get(self, name: str) -> Any | None:
        """What was noted under the name, if anything was."""
        path = self.place and self.place / f"{name}.json"
        return json.loads(path.read_text()) if path and path.exists() else None

    def put(self, name: str, content: Any) -> Any:
        """Notes something; returns it as it will be read."""
        text = json.dumps(content)
        if self.place:
            write_text(self.place / f"{name}.json", text)
        return json.loads(text)
