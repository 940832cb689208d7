"""What a check has found, as a line for people.

Nothing here or in the checks of the machine needs a package, or a Python newer than 3.8: a wrong Python is to be told too.
"""

from typing import NamedTuple

OK, WARNING, FAILED = "ok", "warning", "failed"
_MARKS = {OK: "✓", WARNING: "!", FAILED: "✗"}


class Finding(NamedTuple):
    """One check: its name, its status, what that means, and what to do unless all is well."""

    name: str
    status: str
    meaning: str
    repair: str = ""

    def __str__(self) -> str:
        told = f"{_MARKS[self.status]} {self.name:<12} {self.meaning}"
        return f"{told}\n  {'':<12} -> {self.repair}" if self.repair else told
