"""One launcher at a time for a job directory, on this machine and in a bucket.

    with locked("jobs/a") as descriptor: ...  # a second one is refused
    holder("jobs/a")  # Launcher(pid=4711, ...), or None when there is no launcher
    with leased("gs://bucket/job"): ...  # the same for a job directory in a bucket

The lock of a directory is the system's, so it ends with its holders, however they end. The guard
holds it too: a launcher that was killed is over only when its replicas are gone. Who holds it is
written in the file, where other machines and containers that share the directory read it.

In a bucket the object `launcher.lock` says who holds it, and has a lease: a thread of the launcher
writes it again every 5 s, and whoever sees it unchanged for 30 s takes it over, by when the guard
of a launcher that was killed has done its work. A launcher whose lock was taken over, as its
network or the whole machine stood still, is killed.
"""

import contextlib
import fcntl
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import psutil
from pydantic import BaseModel, Field

from common import locks
from common.errors import UserError
from common.storage.files import write_bytes
from common.storage.storage import is_remote, storage_of

FILE = "launcher.lock"
BEAT_S, LEASE_S = 5.0, 30.0
_POLLS = 30  # While another's lease runs.
_MOST_BYTES = 4096
_CLOCK_S = (
    5.0  # By which the system may count the same start differently, as it corrects its clock.
)
_HOST = socket.gethostname()
with contextlib.suppress(OSError):
    _HOST += f", {os.readlink('/proc/self/ns/pid')}"


class Launcher(BaseModel, frozen=True):
    """A launcher's process, as others may read of it; a process id alone would elsewhere be somebody else's."""

    host: str  # Name of its machine or container, and namespace in which `pid` means this process.
    pid: int = Field(ge=0, lt=2**31)
    started: float = Field(ge=0, lt=1e11)  # Seconds since the epoch.

    @classmethod
    def of(cls, pid: int) -> Self:
        """Returns the process of this machine, or container, with this id; one that never was if there is none."""
        started = 0.0
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                started = process.create_time()
        return cls(host=_HOST, pid=pid, started=started)

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Returns the launcher that a lock names; one that is nowhere if it names none."""
        try:
            return cls.model_validate_json(text)
        except ValueError:
            return cls(host="an unknown host", pid=0, started=0)

    @property
    def is_here(self) -> bool:
        """Whether it was started on this machine, or in this container."""
        return self.host == _HOST

    @property
    def is_alive(self) -> bool:
        """Whether it runs here."""
        return self.is_here and abs(self.started - self.of(self.pid).started) < _CLOCK_S

    @property
    def name(self) -> str:
        """`process 7`, and where that is, unless it is here."""
        return f"process {self.pid}" + ("" if self.is_here else f" of {self.host}")

    def terminate(self) -> None:
        """Sends SIGTERM to it, and never to another process: nothing is sent if it has ended or is not known from here."""
        try:
            process = psutil.Process(self.pid)
            if self.is_alive:  # Tested afterwards: psutil signals no process that has the id since.
                process.terminate()
        except psutil.NoSuchProcess:
            pass
        except psutil.AccessDenied:
            raise UserError(f"{self.name} is another user's; stop it as that user") from None


@contextlib.contextmanager
def locked(directory: str) -> Iterator[int]:
    """Holds the lock, and yields the descriptor that other processes may hold it by.

    While another launcher lives, that is refused; the guard of one that is gone is waited for: it
    finishes its work.
    """
    os.makedirs(directory, exist_ok=True)

    def refuse() -> None:
        launcher = holder(directory)
        if launcher and (launcher.is_alive or not launcher.is_here):
            raise _refusal(directory, launcher)

    with locks.locked(os.path.join(directory, FILE), refuse) as descriptor:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, Launcher.of(os.getpid()).model_dump_json().encode(), 0)
        yield descriptor


def _refusal(job_dir: str, launcher: Launcher) -> UserError:
    """Returns the error of a second launcher, which names the first."""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(launcher.started))
    place = "" if launcher.is_here else ", there,"
    directory = "LOG_DIR" if is_remote(job_dir) else job_dir
    return UserError(
        f"a launcher already works on {job_dir}: {launcher.name}, since {since}; wait for it, end "
        f"it{place} "
        f"with python -m components.train --stop {directory}, or use another --job-dir"
    )


def holder(directory: str) -> Launcher | None:
    """Returns the launcher that works here, if one does or what is left of it is still being removed."""
    with contextlib.suppress(OSError), open(os.path.join(directory, FILE), "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # One that has only just taken it has not written its name yet.
            return Launcher.parse(file.read(_MOST_BYTES))
    return None


class Lease:
    """The lock of a job directory in a bucket, for one launcher."""

    def __init__(self, job_dir: str, launcher: Launcher, lease_s: float = LEASE_S) -> None:
        self.job_dir = job_dir
        self.lease_s = lease_s
        self._content = launcher.model_dump_json().encode()
        self._path = f"{job_dir.rstrip('/')}/{FILE}"
        self._storage = storage_of(job_dir)
        self._version = ""

    def take(self) -> None:
        """Takes the lock, if need be after another's lease has run out; a `UserError` names a launcher that is alive."""
        seen, ends_at = (
            "",
            0.0,
        )  # The version of another launcher's lock, and when its lease ends if it stays.
        while not self._write(seen if time.monotonic() >= ends_at else ""):
            content, version = self._read()
            launcher = Launcher.parse(content)
            if launcher.is_alive or (seen and version and version != seen and not launcher.is_here):
                raise _refusal(self.job_dir, launcher)
            if version != seen:
                seen, ends_at = version, time.monotonic() + self.lease_s
                waiting = f"waiting up to {self.lease_s:g} s for a sign of life"
                print(
                    f"{self.job_dir} is locked by {launcher.name}; {waiting}",
                    file=sys.stderr,
                    flush=True,
                )
            time.sleep(self.lease_s / _POLLS)

    def beat(self) -> bool:
        """Writes it again; returns False if another launcher has it, which is not assumed while the store cannot be reached."""
        with contextlib.suppress(UserError, ConnectionError):
            # Somebody may have deleted it.
            return self._write(self._version, timeout_s=BEAT_S) or (
                not self._read()[1] and self._write("")
            )
        return True

    def release(self) -> None:
        """Deletes it, if it is still ours."""
        with contextlib.suppress(UserError, ConnectionError):
            self._storage.delete(self._path, if_version=self._version)

    def _read(self) -> tuple[bytes, str]:
        return self._storage.read(self._path, _MOST_BYTES) or (b"", "")

    def _write(self, if_version: str, **options: Any) -> bool:
        """Replaces a version; returns whether it was still there."""
        try:
            self._version = write_bytes(
                self._path, self._content, if_version=if_version, **options
            ).version
        except FileExistsError:
            return False
        return True


@contextlib.contextmanager
def leased(job_dir: str) -> Iterator[None]:
    """Holds the lock of a job directory in a bucket."""
    lease = Lease(job_dir, Launcher.of(os.getpid()))
    lease.take()
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(BEAT_S):
            if not lease.beat():
                text = f"error: another launcher has taken over {job_dir}; this one is killed"
                print(text, file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)

    thread = threading.Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        lease.release()
