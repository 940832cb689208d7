"""One replica as a process: started, signalled, reaped."""

import contextlib
import ctypes
import functools
import math
import os
import signal
import subprocess
import sys
import time

from common import lifeline
from common.errors import UserError
from common.guard import MARK, Guard
from components.train.supervision.health import Vitals
from components.train.supervision.plan import ATTEMPT, Replica
from components.train.supervision.restart_policy import Kind, kind_of
from trainer.cluster.member import POOL_GPUS, POOL_ROLES
from trainer.cluster.shutdown import ON_VERTEX

_TAIL_LINES, _TAIL_BYTES = 20, 65_536
_LIBC = (
    ctypes.CDLL(None) if sys.platform == "linux" else None
)  # Not after a fork, where loading may hang.
# What a launcher above this one, a Vertex replica say, told this process about itself is not for
# its replicas.
_ROLE_VARIABLES = ("TF_CONFIG", "CLUSTER_SPEC", POOL_ROLES, POOL_GPUS, ON_VERTEX)


class Child:
    """A start of a replica."""

    def __init__(self, replica: Replica, attempt: int, guard: Guard) -> None:
        """Starts it, as number `attempt` from 0."""
        self.replica, self.attempt = replica, attempt
        self.exit_code: int | None = (
            None  # As a shell has it, 128+n after signal n; None while it runs.
        )
        self.ending = (
            ""  # `exit code 3`, `SIGKILL`, or why it was taken for frozen; empty while it runs.
        )
        self.frozen = ""  # Why it was taken for frozen and killed, if it was.
        self.is_signalled = False  # Whether it got a signal from us.
        self.is_killed = False  # Whether it got SIGKILL from us, because it had not ended in time.
        self.started = time.monotonic()
        self._term_at = self._kill_at = math.inf
        environ = {name: value for name, value in os.environ.items() if name not in _ROLE_VARIABLES}
        environ |= {
            "TMPDIR": guard.scratch,
            **replica.env,
            ATTEMPT: str(attempt),
            MARK: guard.mark(replica.name),
        }
        with contextlib.suppress(OSError):
            os.unlink(replica.status)  # What an earlier start said of itself is not about this one.
        try:
            # Appended: the log of a resumed job goes on where it was. The replica writes to it by
            # itself: a launcher that is stopped or killed holds it up in nothing.
            with open(replica.log, "ab", buffering=0) as log:
                self.log_start = log.tell()
                self.process = subprocess.Popen(
                    replica.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environ,
                    start_new_session=True,
                    # The guard would find it too, but not before it carries the mark, and not if
                    # the guard was killed.
                    preexec_fn=functools.partial(_die_with_parent, os.getpid()),
                )
        except OSError as error:
            raise UserError(f"{replica.name}: cannot start: {error}") from None
        self.pidfd = lifeline.open_pidfd(
            self.process.pid
        )  # Tells of its end, where the system has such a thing.
        self.vitals = Vitals(replica.status, self.process.pid, self.started)

    @property
    def kind(self) -> Kind:
        """Cause of the end."""
        return Kind.ERROR if self.frozen else kind_of(self.exit_code)

    def finish(self) -> None:
        """Reaps it after its death."""
        code = self.process.wait()
        self.exit_code = code if code >= 0 else 128 - code
        self.ending = f"frozen ({self.frozen})" if self.frozen else ending(code)

    def tail(self) -> list[str]:
        """Returns the last lines that it wrote."""
        with open(self.replica.log, "rb") as log:
            log.seek(max(self.log_start, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return (
                log.read(_TAIL_BYTES)
                .decode("utf-8", "replace")
                .rstrip()
                .splitlines()[-_TAIL_LINES:]
            )

    def stop(self, wait_s: float, grace_s: float) -> None:
        """Lets it run for `wait_s`, then asks it to end, then after `grace_s` SIGKILL; an earlier time set stays."""
        now = time.monotonic()
        if not self.is_signalled:  # A second SIGTERM could interrupt a program that saves.
            self._term_at = min(self._term_at, now + wait_s)
        self._kill_at = min(self._kill_at, now + wait_s + grace_s)

    def signal_if_due(self) -> None:
        """Sends what is due to the process group."""
        now = time.monotonic()
        if now >= self._kill_at:
            self._kill_at = self._term_at = math.inf
            self.is_killed = True
            self.signal(signal.SIGKILL)
        elif now >= self._term_at:
            self._term_at = math.inf
            self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        """Sends a signal to the process group at once."""
        self.is_signalled = True
        # It is not reaped before `finish`, so the group's id is still its own.
        os.killpg(self.process.pid, number)


def ending(returncode: int) -> str:
    """Returns how a process ended: `exit code 3`, or `SIGKILL`."""
    if returncode >= 0:
        return f"exit code {returncode}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-returncode).name
    return f"signal {-returncode}"  # A real-time one, which has no name.


def _die_with_parent(parent: int) -> None:
    """Has Linux kill this process when its parent's thread ends; for a new process, before it becomes the replica."""
    if _LIBC:
        _LIBC.prctl(1, ctypes.c_ulong(signal.SIGKILL))
        if os.getppid() != parent:
            os._exit(1)  # It ended before it was asked.
