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
import sys
import time
from typing import Self

import psutil

from trainer.base.errors import UserError


class Fate(enum.Enum):
    """What can be said from here about a launcher: `UNKNOWN` is that of another machine or container."""

    LIVES = enum.auto()
    GONE = enum.auto()
    UNKNOWN = enum.auto()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launcher:
    """A launcher, as others may read of it."""

    host: str  # Name of its machine or container.
    boot: str  # Identity of the machine's start; containers have that of their machine.
    pid_namespace: str  # In which `pid` means this process.
    pid: int  # Its process id.
    started: float  # When the process started, as the system counts: another process with this id has another time.
    since: float  # When it began its work, in seconds since the epoch.

    @classmethod
    def of(cls, pid: int) -> Self:
        """The process of this machine, or container, with this id; one that never was if there is none."""
        host, boot, pid_namespace = _here()
        times = {"started": _started(pid) or 0.0, "since": time.time()}
        return cls(host=host, boot=boot, pid_namespace=pid_namespace, pid=pid, **times)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self | None:
        """As `to_json` wrote it, or None."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    def to_json(self) -> str:
        """For a lock or a label."""
        return json.dumps(dataclasses.asdict(self))

    @property
    def fate(self) -> Fate:
        """Whether it lives, if that can be told from here."""
        if (self.host, self.boot, self.pid_namespace) != _here():
            return Fate.UNKNOWN
        return Fate.LIVES if self.started == _started(self.pid) else Fate.GONE

    @property
    def name(self) -> str:
        """`process 7`, and where that is, unless it is here."""
        host, boot, _ = _here()
        if self.fate is not Fate.UNKNOWN:
            return f"process {self.pid}"
        if self.boot == boot:
            return f"process {self.pid} in another container of this machine, {self.host}"
        other = "this machine before its last start, or of another of the same name" if self.host == host else self.host
        return f"process {self.pid} of {other} (boot {self.boot}, {self.pid_namespace})"

    def terminate(self) -> None:
        """Sends SIGTERM to it, and never to another process: nothing is sent if it has ended or is not known from here."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            try:
                if self.fate is Fate.LIVES:  # Asked afterwards: psutil signals no process that has the id since.
                    process.terminate()
            except psutil.AccessDenied:
                raise UserError(f"{self.name} is another user's; stop it as that user") from None


def _here() -> tuple[str, str, str]:
    """Host, boot and pid namespace of this process; what the system does not tell is empty."""
    boot = pid_namespace = ""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    with contextlib.suppress(OSError):
        pid_namespace = os.readlink("/proc/self/ns/pid")
    return socket.gethostname(), boot, pid_namespace


def _started(pid: int) -> float | None:
    """When a process started, in a count that setting the clock does not change where there is one; None if it ended."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        if sys.platform != "linux":
            return process.create_time()
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return float(file.read().rpartition(")")[2].split()[19])  # The name before it may hold anything.
    except (psutil.NoSuchProcess, OSError):
        return None
