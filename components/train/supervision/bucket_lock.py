"""One launcher at a time for a job directory in a bucket, whichever machine each of them runs on.

    with bucket_locked("gs://bucket/job") as descriptor: ...  # a second one is refused

The object `launcher.lock` says who holds it, and has a lease: it is written again every 5 s, and whoever sees it unchanged
for 30 s takes it over. A process of its own does that for as long as somebody has the descriptor open, which are the launcher and its
guard, and then deletes it: a launcher that was killed is over when its replicas are gone. Where the lock was taken over
meanwhile, as by who saw no write while the network was down, the launcher is killed.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from common.errors import UserError
from common.storage.files import write_bytes
from common.storage.storage import storage_of
from components.train.backends.launcher_identity import Fate, Launcher
from components.train.supervision.job_lock import FILE, refusal
from components.train.supervision.signals import STOPPING

BEAT_S, LEASE_S = 5.0, 30.0
_POLL_S = 1.0
_MOST_BYTES = 4096


class Lost(Exception):
    """Another launcher holds the lock."""


class BucketLock:
    """The lock of a job directory, for one launcher."""

    def __init__(self, job_dir: str, launcher: Launcher, lease_s: float = LEASE_S) -> None:
        self.job_dir = job_dir
        self.lease_s = lease_s
        self._content = launcher.to_json().encode()
        self._path = f"{job_dir.rstrip('/')}/{FILE}"
        self._storage = storage_of(job_dir)
        self._version = ""

    def take(self, wait: Callable[[float], object]) -> None:
        """Takes the lock, after waiting for a lease to run out, if it does; a `UserError` names a launcher that is alive.

        Args:
          wait: Waits for so many seconds.
        """
        seen, seen_at = "", 0.0  # The version of another launcher's lock, and since when that is.
        replaced = ""
        while not self._write(replaced):
            replaced = ""
            content, version = self._read()
            holder = Launcher.from_json(content)
            fate = holder.fate if holder else Fate.UNKNOWN
            has_written = bool(seen) and version not in ("", seen)
            if fate is Fate.LIVES or (has_written and fate is Fate.UNKNOWN):
                raise refusal(self.job_dir, holder or Launcher.of(0))
            if not seen and fate is Fate.UNKNOWN and holder:
                text = f"{self.job_dir} is locked by {holder.name}; waiting up to {self.lease_s:g} s for a sign of life"
                print(text, file=sys.stderr, flush=True)
            if version != seen:
                seen, seen_at = version, time.monotonic()
            elif seen and time.monotonic() - seen_at >= self.lease_s:
                replaced = seen
                continue
            wait(_POLL_S)

    def beat(self) -> None:
        """Writes it again; raises `Lost` if another launcher has it, and does nothing while the store cannot be reached."""
        with contextlib.suppress(UserError, ConnectionError):
            if self._write(self._version, timeout_s=BEAT_S):
                return
            _, version = self._read()
            if version or not self._write(""):
                raise Lost

    def release(self) -> None:
        """Deletes it, if it is still ours."""
        with contextlib.suppress(UserError, ConnectionError):
            self._storage.delete(self._path, if_version=self._version)

    def _read(self) -> tuple[bytes, str]:
        return self._storage.read(self._path, _MOST_BYTES) or (b"", "")

    def _write(self, if_version: str, **options: Any) -> bool:
        """Replaces a version; returns whether it was still there."""
        try:
            self._version = write_bytes(self._path, self._content, if_version=if_version, **options).version
        except FileExistsError:
            return False
        return True


@contextlib.contextmanager
def bucket_locked(job_dir: str) -> Iterator[int]:
    """Holds the lock, and yields the descriptor that other processes may hold it by."""
    command = [sys.executable, "-m", __name__, job_dir]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        answer = process.stdout.readline()
        if answer != "\n":
            raise UserError(answer.strip() or f"{job_dir}: its lock cannot be taken")
        yield process.stdin.fileno()


def _main(job_dir: str) -> None:
    """Holds the lock of the parent process until standard input ends; an empty line says that it has it."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    launcher = Launcher.of(os.getppid())
    lock = BucketLock(job_dir, launcher)
    try:
        lock.take(lambda within_s: _is_over(within_s) and sys.exit())
    except UserError as error:
        print(error, flush=True)
        return
    print(flush=True)
    try:
        while not _is_over(BEAT_S):
            lock.beat()
        lock.release()
    except Lost:
        print(f"error: another launcher has taken over {job_dir}; this one is killed", file=sys.stderr, flush=True)
        if launcher.fate is Fate.LIVES:
            os.kill(launcher.pid, signal.SIGKILL)


def _is_over(within_s: float) -> bool:
    """Waits; returns whether nobody has the other end of standard input open any more."""
    return bool(select.select([sys.stdin], [], [], within_s)[0])


if __name__ == "__main__":
    _main(sys.argv[1])
