"""Which process a launcher is, so that others know it again: a process id alone would elsewhere be somebody else's.

text = Launcher.of(os.getpid()).to_json()
if Launcher.from_json(text).fate is Fate.GONE: ...  # what it left may be removed
"""

import contextlib
import dataclasses
import enum
import json
import os
import socket
from typing import Annotated, Self

import psutil
from pydantic import Field, TypeAdapter

from common import bounded_json
from common.errors import UserError

_CLOCK_S = 5.0  # By which the system may count the same start differently, as it corrects its clock.


class Fate(enum.Enum):
    """What can be said from here about a launcher: `UNKNOWN` is that of another machine or container."""

    LIVES = enum.auto()
    GONE = enum.auto()
    UNKNOWN = enum.auto()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launcher:
    """A launcher, as others may read of it."""

    host: str  # Name of its machine or container.
    pid_namespace: str  # In which `pid` means this process.
    pid: Annotated[int, Field(ge=0, lt=2**31)]  # Its process id.
    started: Annotated[float, Field(ge=0, lt=1e11)]  # When the process started, in seconds since the epoch.

    @classmethod
    def of(cls, pid: int) -> Self:
        """Returns the process of this machine, or container, with this id; one that never was if there is none."""
        return cls(host=socket.gethostname(), pid_namespace=_pid_namespace(), pid=pid, started=_started(pid))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self | None:
        """Returns what `to_json` wrote, or None if the text is something else."""
        try:
            return TypeAdapter(cls).validate_python(bounded_json.parse(text))
        except ValueError:
            return None

    def to_json(self) -> str:
        """Returns it as text for a lock."""
        return json.dumps(dataclasses.asdict(self))

    @property
    def fate(self) -> Fate:
        """Whether it lives, if that can be known from here."""
        if (self.host, self.pid_namespace) != (socket.gethostname(), _pid_namespace()):
            return Fate.UNKNOWN
        return Fate.LIVES if abs(self.started - _started(self.pid)) < _CLOCK_S else Fate.GONE

    @property
    def name(self) -> str:
        """`process 7`, and where that is, unless it is here."""
        return (
            f"process {self.pid} of {self.host}, {self.pid_namespace}"
            if self.fate is Fate.UNKNOWN
            else f"process {self.pid}"
        )

    def terminate(self) -> None:
        """Sends SIGTERM to it, and never to another process: nothing is sent if it has ended or is not known from here."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            try:
                if self.fate is Fate.LIVES:  # Asked afterwards: psutil signals no process that has the id since.
                    process.terminate()
            except psutil.AccessDenied:
                raise UserError(f"{self.name} is another user's; stop it as that user") from None


def _pid_namespace() -> str:
    """Returns the identity of this process's pid namespace; nothing where the system has none."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> float:
    """Returns when a process started; 0 if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            return process.create_time()
    return 0.0
