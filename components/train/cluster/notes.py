"""What `--cluster` names, in our words, and what is told of it to the person who wrote the file."""

import dataclasses
import sys
from collections.abc import Iterable
from typing import Any

from common.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Note:
    """One thing that is not as the file says."""

    place: str  # Where in the file, or which flag.
    text: str  # What happens to it.
    # Whether other machines, or fewer, run than the file asks for, or something it demands is left out.
    changes: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """What was named, and what else the file names than a cluster."""

    name: str  # Path or tier, as it was given.
    kind: str  # What it is, for people.
    values: Any  # The content of a cluster file, unchecked; of a translated one all but its strategy.
    notes: tuple[Note, ...] = ()  # What was translated, replaced or left out on the way.
    region: str | None = None
    args: tuple[str, ...] = ()  # Flags of the trainer.
    job_dir: str | None = None
    ours: bool = False  # Whether it is a cluster file of ours, which names its strategy.


def tell(name: str, notes: Iterable[Note]) -> None:
    """Writes each on a line of standard error."""
    for note in notes:
        print(f"{'replaced' if note.changes else 'note'}: {name}: {note}", file=sys.stderr)


def refuse_changes(name: str, notes: Iterable[Note]) -> None:
    """For those who want exactly what the file says: refuses what a note says that it will not be."""
    if changes := "; ".join(str(note) for note in notes if note.changes):
        raise UserError(f"{name}: --strict allows no replacement: {changes}; edit the file, or leave --strict out")
