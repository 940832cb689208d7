"""Who is to blame for what happened to a job."""

from __future__ import annotations

import dataclasses
import signal

from components.train.supervision.replica import Child
from components.train.supervision.restart_policy import Kind, kind_of

_FROZEN_CODE = 128 + signal.SIGKILL


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blame:
    """A death that is to be answered.

    Attributes:
      child: Who died, or is being killed because it is frozen.
      exit_code: As a shell has it.
      kind: What it was.
    """

    child: Child
    exit_code: int
    kind: Kind

    @classmethod
    def of(cls, child: Child) -> Blame:
        """Of a child that has ended, or is frozen."""
        code = _FROZEN_CODE if child.frozen else child.exit_code
        return cls(child=child, exit_code=code, kind=kind_of(code, frozen=bool(child.frozen)))

    @property
    def fields(self) -> dict[str, object]:
        """For the record."""
        child = self.child
        return {
            "replica": child.replica.name,
            "ending": child.ending,
            "exit_code": self.exit_code,
            "log": child.replica.log,
            "tail": list(child.tail),
        }
