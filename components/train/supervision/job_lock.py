"""One launcher at a time for a job directory.

Synopsis:

    with locked("jobs/a") as descriptor: ...  # a second one is refused
    holder("jobs/a")  # Holder(pid=4711, ...), or None when there is no launcher

The lock is the system's, so it ends with its holders, however they end. The guard holds it too: a launcher that was
killed is over only when its replicas are gone. Who holds it is written in the file, where other machines and containers that
share the directory read it: a process id alone would there be somebody else's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import fcntl
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator

import psutil

from components.train.supervision.reaper import LIMIT_S
from trainer.base import lifeline
from trainer.base.errors import UserError

FILE = "launcher.lock"
_POLL_S = 0.05


class Fate(enum.Enum):
    """What can be said from here about a launcher: `UNKNOWN` is that of another machine or container."""

    LIVES = enum.auto()
    GONE = enum.auto()
    UNKNOWN = enum.auto()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holder:
    """The launcher that holds a lock.

    Attributes:
      host: Name of its machine or container.
      boot: Identity of the machine's start; containers have that of their machine.
      pid_namespace: In which `pid` means this process.
      pid: Its process id.
      started: When the process started, as the system counts: another process with this id has another time.
      since: When it took the lock, in seconds since the epoch.
    """

    host: str
    boot: str
    pid_namespace: str
    pid: int
    started: float
    since: float

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
        """Sends SIGTERM to it, and never to another process: nothing is sent if it has ended or is not known from here.

        Raises:
          UserError: If it is another user's.
        """
        with contextlib.suppress(ProcessLookupError):
            descriptor = lifeline.open_pidfd(self.pid)
            try:
                if self.fate is not Fate.LIVES:  # Asked after the opening: what is open cannot become another process.
                    return
                if descriptor is None:
                    os.kill(self.pid, signal.SIGTERM)
                else:
                    signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            except PermissionError:
                raise UserError(f"{self.name} is another user's; stop it as that user") from None
            finally:
                if descriptor is not None:
                    os.close(descriptor)


@contextlib.contextmanager
def locked(directory: str) -> Iterator[int]:
    """Holds the lock, and yields the descriptor that other processes may hold it by.

    Raises:
      UserError: If another launcher holds it, or the directory cannot be written.
    """
    try:
        os.makedirs(directory, exist_ok=True)
        descriptor = os.open(os.path.join(directory, FILE), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise UserError(f"cannot write to {directory}: {error.strerror}") from None
    try:
        _take(descriptor, directory)
        host, boot, pid_namespace = _here()
        pid = os.getpid()
        me = Holder(
            host=host, boot=boot, pid_namespace=pid_namespace, pid=pid, started=_started(pid) or 0, since=time.time()
        )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(dataclasses.asdict(me)).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def holder(directory: str) -> Holder | None:
    """The launcher that works here, if one does or what is left of it is still being removed."""
    try:
        descriptor = os.open(os.path.join(directory, FILE), os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _read(descriptor)
    finally:
        os.close(descriptor)


def _take(descriptor: int, directory: str) -> None:
    """Locks, waiting for the guard of a launcher that is gone to finish its work."""
    give_up = time.monotonic() + LIMIT_S
    while True:
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = _read(descriptor)
        if found.fate is not Fate.GONE or time.monotonic() > give_up:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.since))
            there = ", there," if found.fate is Fate.UNKNOWN else ""
            raise UserError(
                f"a launcher already works on {directory}: {found.name}, since {since}; wait for it, end it{there} "
                f"with python -m components.train --stop {directory}, or use another --job-dir"
            )
        time.sleep(_POLL_S)


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


def _read(descriptor: int) -> Holder:
    try:
        return Holder(**json.loads(os.pread(descriptor, 4096, 0)))
    except (ValueError, TypeError):  # It has only just taken it, and no process has this id.
        host, boot, pid_namespace = _here()
        return Holder(host=host, boot=boot, pid_namespace=pid_namespace, pid=0, started=0.0, since=0.0)
