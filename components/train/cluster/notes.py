"""What `--cluster` names, in our words, and what is told of it to the person who wrote the file."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterable, Iterator
from typing import Any

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """What was named.

    Attributes:
      name: Path or tier, as it was given.
      kind: What it is, for people.
      values: The content of a cluster file, unchecked; of a translated one all but its strategy.
      notes: What was translated, replaced or left out on the way.
      region: That it names.
      args: Flags of the trainer, that it names.
      job_dir: That it names.
      ours: Whether it is a cluster file of ours, which names its strategy.
    """

    name: str
    kind: str
    values: Any
    notes: tuple[Note, ...] = ()
    region: str | None = None
    args: tuple[str, ...] = ()
    job_dir: str | None = None
    ours: bool = False


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


@contextlib.contextmanager
def about(name: str) -> Iterator[None]:
    """Has errors begin with the name of what they are about.

    Raises:
      UserError: With the name, in place of one without.
    """
    try:
        yield
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
