"""Locks that allow a job directory one launcher at a time, on this machine and in a bucket.

    with locked("jobs/a") as descriptor: ...  # Refuses a second launcher.
    holder("jobs/a")  # Launcher(pid=4711, ...), or None if there is no launcher.
    with leased("gs://bucket/job"): ...  # The same for a job directory in a bucket.

The lock of a local directory is a lock of the operating system, which is released when all its
holders have ended. The guard holds it too, so after a launcher was killed the lock is released only
when its replicas are gone. The file `launcher.lock` names the holder, for other machines and
containers that share the directory.

In a bucket, the object `launcher.lock` names the holder and has a lease. A thread of the launcher
writes it again every 5 s. A launcher that sees it unchanged for 30 s takes it over; by then the
guard of a killed launcher has done its work. A launcher whose lock was taken over, because its
network or machine had stopped for a while, kills itself.
"""

import contextlib
import fcntl
import os
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
from common.lifeline import kill_self
from common.storage.files import write_bytes
from common.storage.storage import is_remote, storage_of

FILE = "launcher.lock"
BEAT_S, LEASE_S = 5.0, 30.0
_POLLS = 30  # Number of reads of the lock while the lease of another launcher runs.
_READS, _READ_EVERY_S = 100, 0.01  # Attempts to read the name of one that just took the lock.
_MOST_BYTES = 4096
# The start time of a process is computed from the system's clock, so it may differ between two
# reads by as much as the clock was corrected in between.
_CLOCK_S = 5.0
# Containers may have the same host name but have process ids of their own, so the namespace of
# process ids is added.
_HOST = socket.gethostname()
with contextlib.suppress(OSError):
    _HOST += f", {os.readlink('/proc/self/ns/pid')}"


class Launcher(BaseModel, frozen=True):
    """Identity of a launcher's process, which also holds on other machines and after its end.

    Attributes:
      host: Name of its machine or container, with the namespace of its process id.
      pid: Process id.
      started: Start of the process in seconds since the epoch; 0 if there is no such process.
    """

    host: str
    pid: int = Field(ge=0, lt=2**31)
    started: float = Field(ge=0, lt=1e11)

    @classmethod
    def of(cls, pid: int) -> Self:
        """Returns the identity of a process of this machine or container.

        If there is no such process, or it is a zombie, `started` is 0, by which `is_alive` of a
        launcher that had this id knows that it has ended.
        """
        started = 0.0
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                started = process.create_time()
        return cls(host=_HOST, pid=pid, started=started)

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Returns the launcher that the content of a lock names.

        If the content is empty or damaged, it is process 0 of "an unknown host".
        """
        try:
            return cls.model_validate_json(text)
        except ValueError:
            return cls(host="an unknown host", pid=0, started=0)

    @property
    def is_here(self) -> bool:
        """True if it was started on this machine and in this container."""
        return self.host == _HOST

    @property
    def is_alive(self) -> bool:
        """True if it still runs; always False for one of another machine or container."""
        return self.is_here and abs(self.started - self.of(self.pid).started) < _CLOCK_S

    @property
    def name(self) -> str:
        """Name for people: `process 7`, or `process 7 of HOST` if that is not here."""
        return f"process {self.pid}" + ("" if self.is_here else f" of {self.host}")

    def terminate(self) -> None:
        """Sends SIGTERM to the launcher; does nothing if it has ended or does not run here.

        Raises:
          UserError: If the process is another user's.
        """
        try:
            process = psutil.Process(self.pid)
            # psutil sends no signal if another process has the id since the line above, so the
            # check has to come after it.
            if self.is_alive:
                process.terminate()
        except psutil.NoSuchProcess:
            pass
        except psutil.AccessDenied:
            raise UserError(f"{self.name} is another user's; stop it as that user") from None


@contextlib.contextmanager
def locked(directory: str) -> Iterator[int]:
    """Holds the lock of a local job directory, which is created if it does not exist.

    The lock is on the file `launcher.lock`, into which the identity of this process is written.

    If the launcher that held the lock is gone but its guard is not, waits until the guard has
    removed what is left of the job.

    Yields:
      Descriptor of the lock file. A process that inherits it holds the lock too.

    Raises:
      UserError: If another launcher holds the lock and is alive, or is on another machine or in
        another container.
      OSError: If the directory or the file cannot be written.
    """
    os.makedirs(directory, exist_ok=True)

    def refuse() -> None:
        launcher = holder(directory)
        if launcher and (launcher.is_alive or not launcher.is_here):
            raise _refusal(directory, launcher)

    content = Launcher.of(os.getpid()).model_dump_json().encode()
    with locks.locked(os.path.join(directory, FILE), refuse) as descriptor:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content, 0)
        yield descriptor


def _refusal(job_dir: str, launcher: Launcher) -> UserError:
    """Returns the error for a second launcher; it names the first one and how to stop it."""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(launcher.started))
    place = "" if launcher.is_here else ", there,"
    directory = "LOG_DIR" if is_remote(job_dir) else job_dir
    return UserError(
        f"a launcher already works on {job_dir}: {launcher.name}, since {since}; wait for it, end "
        f"it{place} with python -m components.train --stop {directory}, or use another directory"
    )


def holder(directory: str) -> Launcher | None:
    """Returns the launcher that holds the lock of a local job directory; None if it is free.

    A lock file that is missing or cannot be opened counts as free.

    The launcher may already be gone, while its guard removes what is left of the job. If it has
    only just taken the lock, waits up to a second until it has written its name; after that, or if
    the name is damaged, returns process 0 of "an unknown host".
    """
    content = b""
    with contextlib.suppress(OSError), open(os.path.join(directory, FILE), "rb") as file:
        for _ in range(_READS):
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                content = file.read(_MOST_BYTES)
            else:
                return None
            if content:
                break
            time.sleep(_READ_EVERY_S)
        return Launcher.parse(content)
    return None


class Lease:
    """The lock of a job directory in a bucket, as one launcher holds it.

    Args:
      job_dir: Job directory.
      launcher: The launcher.
      lease_s: Seconds without a renewal after which another launcher's lock is taken over.
    """

    def __init__(self, job_dir: str, launcher: Launcher, lease_s: float = LEASE_S) -> None:
        self.job_dir = job_dir
        self.lease_s = lease_s
        self._content = launcher.model_dump_json().encode()
        self._path = f"{job_dir.rstrip('/')}/{FILE}"
        self._storage = storage_of(job_dir)
        self._version = ""

    def take(self) -> None:
        """Takes the lock, and waits for the end of another launcher's lease if necessary.

        Prints a line on standard error before it waits.

        Raises:
          UserError: If the other launcher is alive on this machine, or renews its lease (the
            message names it); or if the store refuses a request.
          ConnectionError: If the store does not answer.
        """
        # `seen` is the version of the other launcher's lock. `ends_at` is the monotonic time at
        # which its lease ends if the version stays the same.
        seen, ends_at = ("", 0.0)
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
        """Renews the lease.

        If the lock was deleted, it is created again.

        Returns:
          False if another launcher has taken the lock; True otherwise, also if the store cannot be
          reached or refuses the request.
        """
        with contextlib.suppress(UserError, ConnectionError):
            return self._write(self._version, timeout_s=BEAT_S) or (
                not self._read()[1] and self._write("")
            )
        return True

    def release(self) -> None:
        """Deletes the lock if this launcher still holds it; ignores errors of the store."""
        with contextlib.suppress(UserError, ConnectionError):
            self._storage.delete(self._path, if_version=self._version)

    def _read(self) -> tuple[bytes, str]:
        return self._storage.read(self._path, _MOST_BYTES) or (b"", "")

    def _write(self, if_version: str, **options: Any) -> bool:
        """Writes the lock if its version is `if_version`; returns whether it was.

        An empty `if_version` means that there must be no lock. Errors of the store are raised.
        """
        try:
            self._version = write_bytes(
                self._path, self._content, if_version=if_version, **options
            ).version
        except FileExistsError:
            return False
        return True


@contextlib.contextmanager
def leased(job_dir: str) -> Iterator[None]:
    """Holds the lock of a job directory in a bucket, and renews its lease in a thread.

    If another launcher holds the lock, waits at the beginning until its lease ends, at most 30 s.
    If another one takes the lock over later, this process is killed with SIGKILL.

    Raises:
      UserError: If another launcher holds the lock and is alive, or the bucket refuses a request.
      ConnectionError: If the bucket does not answer before the lock is held.
    """
    lease = Lease(job_dir, Launcher.of(os.getpid()))
    lease.take()
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(BEAT_S):
            if not lease.beat():
                text = f"error: another launcher has taken over {job_dir}; this one is killed"
                print(text, file=sys.stderr, flush=True)
                kill_self()

    thread = threading.Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        lease.release()
