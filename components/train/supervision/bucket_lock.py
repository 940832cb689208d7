"""One launcher at a time for a job directory in a bucket, whichever machine each of them runs on.

    with bucket_locked("gs://bucket/job") as descriptor: ...  # a second one is refused

The object `launcher.lock` says who holds it, and has a lease: it is written again every 5 s, and whoever sees it unchanged
for 30 s takes it over. A process of its own does that for as long as somebody has the descriptor open, which are the launcher and its
guard, and then deletes it: a launcher that was killed is over when its replicas are gone. Where the lock was taken over
meanwhile, as by who saw no write while the network was down, the launcher is killed.
"""

import contextlib
import dataclasses
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from components.files.store import asked, retried
from components.train.backends.launcher_identity import Fate, Launcher
from components.train.supervision.job_lock import FILE, refusal
from components.train.supervision.signals import STOPPING
from trainer.base.errors import UserError

BEAT_S, LEASE_S = 5.0, 30.0
_POLL_S = 1.0


class Lost(Exception):
    """Another launcher holds the lock."""


@dataclasses.dataclass
class BucketLock:
    """The lock of a job directory, for one launcher."""

    job_dir: str
    launcher: Launcher
    lease_s: float = LEASE_S
    generation: int = 0  # Of the object as we wrote it.

    def take(self, wait: Callable[[float], object]) -> None:
        """Takes the lock, after waiting for a lease to run out, if it does; a `UserError` names a launcher that is alive.

        Args:
          wait: Waits for so many seconds.
        """
        seen, seen_at = 0, 0.0  # The generation of another launcher's lock, and since when that is.
        while not self._write(0):
            generation, holder = self._read()
            if holder == self.launcher:  # Our own write, whose answer was lost.
                self.generation = generation
                return
            fate = holder.fate if holder else Fate.UNKNOWN
            has_written = bool(seen) and generation not in (0, seen)
            if fate is Fate.LIVES or (has_written and fate is Fate.UNKNOWN):
                raise refusal(self.job_dir, holder or Launcher.of(0))
            if not seen and fate is Fate.UNKNOWN and holder:
                text = f"{self.job_dir} is locked by {holder.name}; waiting up to {self.lease_s:g} s for a sign of life"
                print(text, file=sys.stderr, flush=True)
            if generation != seen:
                seen, seen_at = generation, time.monotonic()
            elif seen and time.monotonic() - seen_at >= self.lease_s:
                self._delete(seen)
                continue
            wait(_POLL_S)

    def beat(self) -> None:
        """Writes it again; raises `Lost` if another launcher has it, and does nothing while the store cannot be reached."""
        with contextlib.suppress(UserError):
            if self._write(self.generation, retry=None, timeout=BEAT_S):
                return
            generation, holder = self._read()
            if holder == self.launcher:
                self.generation = generation
            elif generation or not self._write(0):
                raise Lost

    def release(self) -> None:
        """Deletes it, if it is still ours."""
        with contextlib.suppress(UserError):
            self._delete(self.generation)

    def _write(self, generation: int, **options: Any) -> bool:
        """Writes the object if it has this generation, 0 if there is none; returns whether it did."""
        from google.api_core.exceptions import PreconditionFailed

        with self._object() as blob:
            try:
                options = {"retry": retried, **options, "if_generation_match": generation}
                blob.upload_from_string(self.launcher.to_json(), "application/json", **options)
            except PreconditionFailed:
                return False
            self.generation = blob.generation
        return True

    def _read(self) -> tuple[int, Launcher | None]:
        """Returns the object's generation, 0 if there is none, and who holds the lock, if that can be read."""
        from google.api_core.exceptions import NotFound

        with self._object() as blob:
            try:
                blob.reload(retry=retried)
                version = blob.bucket.blob(blob.name, generation=blob.generation)
                text = version.download_as_bytes(end=4096, retry=retried) if blob.size else b""
            except NotFound:
                return 0, None
            return blob.generation, Launcher.from_json(text)

    def _delete(self, generation: int) -> None:
        from google.api_core.exceptions import NotFound, PreconditionFailed

        with self._object() as blob, contextlib.suppress(NotFound, PreconditionFailed):
            blob.delete(if_generation_match=generation, retry=retried)

    @contextlib.contextmanager
    def _object(self) -> Iterator[Any]:
        with asked(f"{self.job_dir.rstrip('/')}/{FILE}") as (bucket, name):
            yield bucket.blob(name)


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
        lock.take(_exit_if_over)
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


def _exit_if_over(within_s: float) -> None:
    if _is_over(within_s):
        sys.exit()


if __name__ == "__main__":
    _main(sys.argv[1])
