"""What `--cluster` names, as the content of a cluster file, and what differs from what the user wrote."""

import dataclasses
import sys
from typing import Any

from common.errors import UserError


@dataclasses.dataclass(kw_only=True)
class Source:
    """A cluster before it is checked, and what else its file says."""

    name: str  # Path or scale tier, as the user gave it.
    kind: str  # What it is, for people.
    ours: bool = False  # Whether it is a cluster file of ours.
    values: Any = None  # The content of a cluster file, unchecked.
    notes: list[str] = dataclasses.field(default_factory=list)  # What was translated or has no effect.
    # Where other machines, or fewer, run than the file says, or something that it demands is left out.
    replacements: list[str] = dataclasses.field(default_factory=list)
    region: str | None = None
    args: tuple[str, ...] = ()  # Flags of the trainer.
    job_dir: str | None = None

    def print_notes(self) -> None:
        """Writes each replacement and note on a line of standard error."""
        for kind, texts in (("replaced", self.replacements), ("note", self.notes)):
            for text in texts:
                print(f"{kind}: {self.name}: {text}", file=sys.stderr)

    def refuse_replacements(self) -> None:
        """Raises a UserError if anything else runs than the file says."""
        if self.replacements:
            texts = "; ".join(self.replacements)
            raise UserError(
                f"{self.name}: --strict allows no replacement: {texts}; edit the file, or leave --strict out"
            )
