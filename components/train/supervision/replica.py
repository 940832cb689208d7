"""One replica as a process: started, read, told to stop, cleaned up after."""

import contextlib
import functools
import io
import math
import os
import re
import signal
import subprocess
import time
from collections import deque

from components.train.backends.hosts.replica_agent import die_with_parent
from components.train.backends.plan import ATTEMPT, Replica
from components.train.supervision.audience import Row
from components.train.supervision.health import Vitals
from components.train.supervision.reaper import MARK, Guard
from components.train.supervision.signals import ending
from trainer.base.errors import UserError
from trainer.replicas.exit_codes import ON_VERTEX
from trainer.replicas.member import POOL_GPUS, POOL_ROLES

TAIL_LINES = 20
_CHUNK_BYTES = 65_536
_CHUNKS_AT_ONCE = 16  # As much as a pipe can hold (1 MiB), and no more, lest one replica's flood starve the others.
# A progress bar ends its lines with a carriage return alone; one at the end of a chunk may be half of CR LF.
_LINE_END = re.compile(rb"\r?\n|\r(?=[^\n])")
# What a launcher above this one, a Vertex replica say, told this process about itself is not for its replicas.
_ROLE_VARIABLES = ("TF_CONFIG", "CLUSTER_SPEC", POOL_ROLES, POOL_GPUS, ON_VERTEX)
# Of a death that says nothing else and that nobody would guess.
_CAUSE = {signal.SIGBUS: " (a file that it had mapped into memory was cut short, or its disk is full)"}


class Child:
    """A start of a replica."""

    def __init__(self, replica: Replica, attempt: int, guard: Guard):
        """Starts it, as number `attempt` from 0."""
        self.replica, self.attempt = replica, attempt
        self.exit_code: int | None = None  # As a shell has it, 128+n after signal n; None while it runs.
        self.frozen = ""  # Why it was taken for frozen and killed, if it was.
        self.unlogged = ""  # Why its log lacks something, if it does.
        self.closed = False  # Whether it has closed its output.
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.started = time.monotonic()
        self.cleaner: subprocess.Popen[bytes] | None = None  # The cleanup after its end, while that runs.
        self._guard = guard
        self._rest = b""
        self._term_at = self._kill_at = math.inf
        self._signalled = False
        self._environ = {name: value for name, value in os.environ.items() if name not in _ROLE_VARIABLES}
        self._environ |= {"TMPDIR": guard.scratch, **replica.env, ATTEMPT: str(attempt)}
        self._environ[MARK] = guard.mark(replica.name, attempt)
        with contextlib.suppress(OSError):
            os.unlink(replica.status)  # What an earlier start said of itself is not about this one.
        self._log = self._open_log()
        guard.expect(replica.name, replica.cleanup)
        self.process = self._popen(replica.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.vitals = Vitals(replica.status, self.process.pid, self.started)

    def read(self) -> list[str]:
        """Takes what it has written: raw into its log, and returned as the lines that are complete."""
        for _ in range(_CHUNKS_AT_ONCE):
            chunk = self.process.stdout.read(_CHUNK_BYTES)
            if not chunk:
                self.closed = chunk is not None  # None says that there is nothing now.
                break
            try:
                left = memoryview(chunk)
                while left:  # A disk that is nearly full takes a part.
                    left = left[self._log.write(left) :]
            except OSError as error:  # No reason to end a job that trains; a later line may find room again.
                self.unlogged = error.strerror
            self._rest += chunk
        *lines, self._rest = _LINE_END.split(self._rest)
        if len(self._rest) > _CHUNK_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        return self._decoded(lines)

    def finish(self) -> list[str]:
        """Reaps it after its death and returns its last lines, with a last one that has no end."""
        code = self.process.wait()
        self.exit_code = code if code >= 0 else 128 - code
        self._term_at = self._kill_at = math.inf
        lines = self.read()
        lines += self._decoded([self._rest.rstrip(b"\r")] if self._rest else [])
        self.process.stdout.close()
        self._log.close()
        return lines

    def clean_up(self, limit_s: float) -> bool:
        """Starts what is to be done after its end; returns whether that is something, and now under way as `cleaner`."""
        if not self.replica.cleanup:
            return False
        self.cleaner = self._popen(self.replica.cleanup, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        # Not waited for: what it has started may keep it open.
        os.set_blocking(self.cleaner.stderr.fileno(), False)
        self._kill_at = time.monotonic() + limit_s
        return True

    def cleaned(self) -> str:
        """Reaps the cleanup; returns why it failed, or nothing. The guard tries again at the end of the job."""
        code = self.cleaner.wait()
        with self.cleaner.stderr as stderr:
            said = (stderr.read() or b"").decode("utf-8", "replace").strip().splitlines()
        if code == 0:
            self._guard.expect(self.replica.name, ())
            return ""
        return said[-1] if said else ending(code)

    def stop(self, wait_s: float, grace_s: float) -> None:
        """Lets it run for `wait_s`, then asks it to end, then after `grace_s` SIGKILL; an earlier time set stays."""
        if self.exit_code is None:
            now = time.monotonic()
            self._term_at = min(self._term_at, now + wait_s)
            self._kill_at = min(self._kill_at, now + wait_s + grace_s)

    @property
    def next_signal_at(self) -> float:
        """Monotonic time at which `signal_if_due` has something to do, or infinity."""
        return min(self._term_at, self._kill_at)

    def signal_if_due(self) -> None:
        """Sends what is due to the process group."""
        now = time.monotonic()
        if now >= self._kill_at:
            self._kill_at = self._term_at = math.inf
            self._signal(signal.SIGKILL)
        elif now >= self._term_at:
            self._term_at = math.inf
            self._signal(signal.SIGTERM)

    @property
    def told(self) -> bool:
        """Whether it got a signal from us, or is about to because it is frozen."""
        return self._signalled or bool(self.frozen)

    def row(self, unknown: str) -> Row:
        """How it is, for people; `unknown` while it has not told."""
        if self.exit_code is not None:
            return Row(replica=self.replica.name, state="cleaning up", restarts=self.attempt)
        state = "stopping" if self._signalled else self.vitals.phase or unknown
        return self.vitals.row(self.replica.name, state, self.attempt)

    @property
    def ending(self) -> str:
        """`exit code 3`, `SIGKILL`, or why it was taken for frozen."""
        if self.frozen:
            return f"frozen ({self.frozen})"
        code = self.process.returncode
        return ending(code) + _CAUSE.get(-code, "")

    def _signal(self, number: int) -> None:
        self._signalled = True
        # Neither is reaped before `finish` or `cleaned`, so the group's id is still its own.
        os.killpg((self.cleaner or self.process).pid, number)

    def _open_log(self) -> io.FileIO:
        try:
            # Appended: the log of a resumed job goes on where it was.
            return open(self.replica.log, "ab", buffering=0)
        except OSError as error:
            if not self.attempt:
                raise UserError(f"{self.replica.name}: cannot write {self.replica.log}: {error.strerror}") from None
            self.unlogged = error.strerror
            return open(os.devnull, "ab", buffering=0)

    def _popen(self, command: tuple[str, ...], **streams: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                bufsize=0,
                env=self._environ,
                start_new_session=True,
                # The guard would find it too, but not before it carries the mark, and not if the guard was killed first.
                preexec_fn=functools.partial(die_with_parent, os.getpid()),
                **streams,
            )
        except OSError as error:
            raise UserError(f"{self.replica.name}: cannot start {command[0]}: {error.strerror}") from None

    def _decoded(self, lines: list[bytes]) -> list[str]:
        texts = [line.decode("utf-8", "replace") for line in lines]
        self.tail.extend(texts)
        return texts
