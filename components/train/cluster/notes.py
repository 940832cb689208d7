"""What a translation tells the person who wrote the file."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable

from trainer.base.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Note:
    """One thing that is not as the file says.

    Attributes:
      place: Where in the file, or which flag.
      text: What happens to it.
      changes: Whether other machines, or fewer, run than the file asks for, or something it demands is left out.
    """

    place: str
    text: str
    changes: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


def tell(name: str, notes: Iterable[Note]) -> None:
    """Writes each on a line of standard error."""
    for note in notes:
        print(f"{'replaced' if note.changes else 'note'}: {name}: {note}", file=sys.stderr)


def refuse_changes(name: str, notes: Iterable[Note]) -> None:
    """For those who want exactly what the file says.

    Raises:
      UserError: If a note says that it will not be.
    """
    changes = [str(note) for note in notes if note.changes]
    if changes:
        raise UserError(
            f"{name}: --strict allows no replacement: {'; '.join(changes)}; edit the file, or leave --strict out"
        )
