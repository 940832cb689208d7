"""One replica as a process: started, read, told to stop."""

from __future__ import annotations

import ctypes
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable

from components.train.guard import MARK
from components.train.plan import Replica
from trainer.cluster import POOL_ROLES
from trainer.errors import UserError

TAIL_LINES = 20
_CHUNK_BYTES = 65_536
_CHUNKS_AT_ONCE = 16  # As much as a pipe can hold (1 MiB), and no more, lest one replica's flood starve the others.
# A progress bar ends its lines with a carriage return alone; one at the end of a chunk may be half of CR LF.
_LINE_END = re.compile(rb"\r?\n|\r(?=[^\n])")
# What a launcher above this one, a Vertex replica say, told this process about itself is not for its replicas.
_ROLE_VARIABLES = ("TF_CONFIG", "CLUSTER_SPEC", POOL_ROLES)
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_SIGKILL = ctypes.c_ulong(signal.SIGKILL)


class Child:
    """A running replica.

    Attributes:
      replica: What was planned.
      process: Its process, leader of a session and process group of its own.
      exit_code: As a shell has it, 128+n after signal n; None while it runs.
      closed: Whether it has closed its output.
      tail: Its last lines.
      started: Monotonic time in seconds.
    """

    def __init__(self, replica: Replica, token: str):
        """Starts it; `token` marks it and its descendants for the guard.

        Raises:
          UserError: If its log cannot be written or its command cannot be started.
        """
        self.replica = replica
        self.exit_code: int | None = None
        self.closed = False
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.started = time.monotonic()
        self._rest = b""
        self._term_at = self._kill_at = math.inf
        environ = {name: value for name, value in os.environ.items() if name not in _ROLE_VARIABLES}
        try:
            # Appended: the log of a resumed job goes on where it was.
            self._log = open(replica.log, "ab")  # noqa: SIM115
        except OSError as error:
            raise UserError(f"{replica.name}: cannot write {replica.log}: {error.strerror}") from None
        try:
            self.process = subprocess.Popen(
                replica.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                env={**environ, **replica.env, MARK: token},
                start_new_session=True,
                preexec_fn=_die_with(os.getpid()) if _LIBC else None,
            )
        except OSError as error:
            self._log.close()
            raise UserError(f"{replica.name}: cannot start {replica.command[0]}: {error.strerror}") from None
        os.set_blocking(self.process.stdout.fileno(), False)

    def read(self) -> list[str]:
        """Takes what it has written: raw into its log, and returned as the lines that are complete.

        Raises:
          UserError: If the log cannot be written.
        """
        try:
            for _ in range(_CHUNKS_AT_ONCE):
                chunk = self.process.stdout.read(_CHUNK_BYTES)
                if not chunk:
                    self.closed = chunk is not None  # None says that there is nothing now.
                    break
                self._log.write(chunk)
                self._rest += chunk
            self._log.flush()
        except OSError as error:
            raise UserError(f"{self.replica.name}: cannot write {self.replica.log}: {error.strerror}") from None
        *lines, self._rest = _LINE_END.split(self._rest)
        if len(self._rest) > _CHUNK_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        return self._decoded(lines)

    def finish(self) -> list[str]:
        """Reaps it after its death and returns its last lines, with a last one that has no end."""
        code = self.process.wait()
        self.exit_code = code if code >= 0 else 128 - code
        lines = self.read()
        lines += self._decoded([self._rest.rstrip(b"\r")] if self._rest else [])
        self.process.stdout.close()
        self._log.close()
        return lines

    def stop(self, wait_s: float, grace_s: float) -> None:
        """Lets it run for `wait_s`, then SIGTERM, then after `grace_s` SIGKILL; an earlier time already set stays."""
        now = time.monotonic()
        self._term_at = min(self._term_at, now + wait_s)
        self._kill_at = min(self._kill_at, now + wait_s + grace_s)

    @property
    def next_signal_at(self) -> float:
        """Monotonic time at which `signal_if_due` has something to do, or infinity."""
        return min(self._term_at, self._kill_at)

    def signal_if_due(self) -> None:
        """Sends the signal whose time has come to the process group."""
        now = time.monotonic()
        if now >= self._kill_at:
            self._kill_at = self._term_at = math.inf
            self._signal(signal.SIGKILL)
        elif now >= self._term_at:
            self._term_at = math.inf
            self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        # It is not reaped before `finish`, so the group's id is still its own.
        os.killpg(self.process.pid, number)

    def _decoded(self, lines: list[bytes]) -> list[str]:
        texts = [line.decode("utf-8", "replace") for line in lines]
        self.tail.extend(texts)
        return texts

    @property
    def ending(self) -> str:
        """`exit code 3` or `SIGKILL`."""
        code = self.process.returncode
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _die_with(launcher: int) -> Callable[[], None]:
    """What the new process does before it becomes the replica: ask to be killed when the launcher's thread ends.

    The guard would find it as well, but not before it carries the mark, and not if the guard was killed first.
    """

    def ask() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, _SIGKILL)
        if os.getppid() != launcher:
            os._exit(1)  # It ended before it was asked.

    return ask
