"""The process of one replica: start, signals and end."""

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
# It is loaded here, since loading it after a fork may hang.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
# Variables that describe the role of this process, if it is itself a replica (of Vertex AI, for
# example). They do not hold for its own replicas.
_ROLE_VARIABLES = ("TF_CONFIG", "CLUSTER_SPEC", POOL_ROLES, POOL_GPUS, ON_VERTEX)


class Child:
    """Process of one start of a replica.

    Attributes:
      replica: The replica.
      attempt: Number of the start, from 0.
      exit_code: Exit code as a shell has it, 128+n after signal n; 0 before `finish`.
      ending: How it ended, for people: `exit code 3`, `SIGKILL`, or `frozen (...)` with the reason;
        empty before `finish`.
      frozen: Reason why it was killed as frozen; empty if it was not.
      is_signalled: Whether this launcher has sent it a signal.
      is_killed: Whether this launcher has sent it SIGKILL because it had not ended in time.
      started: Monotonic time of the start.
      log_start: Size of the log file in bytes before the start.
      process: The process, which leads a process group and session of its own.
      pidfd: Descriptor that becomes readable when the process ends; None if the system has none.
      vitals: State of the replica by its status file.
    """

    def __init__(self, replica: Replica, attempt: int, guard: Guard) -> None:
        """Starts the process, and deletes the status file of an earlier start.

        Args:
          replica: Replica to start.
          attempt: Number of the start, from 0.
          guard: Guard of the job, which kills the process when this launcher has ended.

        Raises:
          UserError: If the process cannot be started, or its log file cannot be opened.
        """
        self.replica, self.attempt = replica, attempt
        self.exit_code = 0
        self.ending = ""
        self.frozen = ""
        self.is_signalled = False
        self.is_killed = False
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
            os.unlink(replica.status)
        try:
            # The file is appended to, so that the log of a resumed job continues. The replica
            # writes to the file itself, so that it does not wait for a launcher that is stopped.
            with open(replica.log, "ab", buffering=0) as log:
                self.log_start = log.tell()
                self.process = subprocess.Popen(
                    replica.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environ,
                    start_new_session=True,
                    # The guard would kill it too, but it cannot find a process that does not have
                    # the mark yet, and it may have been killed itself.
                    preexec_fn=functools.partial(_die_with_parent, os.getpid()),
                )
        except OSError as error:
            raise UserError(f"{replica.name}: cannot start: {error}") from None
        self.pidfd = lifeline.open_pidfd(self.process.pid)
        self.vitals = Vitals(replica.status, self.process.pid, self.started)

    @property
    def kind(self) -> Kind:
        """Cause of the end: an error if it was killed as frozen, else by its exit code.

        It has no meaning before `finish`, and for exit code 0.
        """
        return Kind.ERROR if self.frozen else kind_of(self.exit_code)

    def finish(self) -> None:
        """Waits until the process has ended, reaps it, and sets `exit_code` and `ending`."""
        code = self.process.wait()
        self.exit_code = code if code >= 0 else 128 - code
        self.ending = f"frozen ({self.frozen})" if self.frozen else ending(code)

    def tail(self) -> list[str]:
        """Returns the last lines of its output since this start, at most 20 and 64 KiB.

        Raises:
          OSError: If the log file cannot be read.
        """
        with open(self.replica.log, "rb") as log:
            log.seek(max(self.log_start, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return (
                log.read(_TAIL_BYTES)
                .decode("utf-8", "replace")
                .rstrip()
                .splitlines()[-_TAIL_LINES:]
            )

    def stop(self, wait_s: float, grace_s: float) -> None:
        """Schedules SIGTERM and, if the process has not ended by then, SIGKILL.

        `signal_if_due` sends them. If an earlier call has set earlier times, those stay.

        Args:
          wait_s: Seconds from now to SIGTERM, which is left out if a signal was sent before.
          grace_s: Seconds from then to SIGKILL.
        """
        now = time.monotonic()
        # A second SIGTERM could interrupt a program that is saving.
        if not self.is_signalled:
            self._term_at = min(self._term_at, now + wait_s)
        self._kill_at = min(self._kill_at, now + wait_s + grace_s)

    def signal_if_due(self) -> None:
        """Sends the process group the signal that `stop` has scheduled, if its time has come."""
        now = time.monotonic()
        if now >= self._kill_at:
            self._kill_at = self._term_at = math.inf
            self.is_killed = True
            self.signal(signal.SIGKILL)
        elif now >= self._term_at:
            self._term_at = math.inf
            self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        """Sends a signal to the process group at once; not to be called after `finish`."""
        self.is_signalled = True
        # `finish` reaps the process, so until then no other process group can have its id.
        os.killpg(self.process.pid, number)


def ending(returncode: int) -> str:
    """Returns how a process ended, for people: `exit code 3`, or the name of a signal.

    Args:
      returncode: Return code of `subprocess.Popen`; -n if signal n killed the process.
    """
    if returncode >= 0:
        return f"exit code {returncode}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-returncode).name
    return f"signal {-returncode}"  # Real-time signals have no names.


def _die_with_parent(parent: int) -> None:
    """Asks Linux to kill this new process when the thread that started it ends.

    Does nothing on other systems.

    Args:
      parent: Process id of the launcher. If it has already ended, this process exits with 1.
    """
    if _LIBC:
        _LIBC.prctl(1, ctypes.c_ulong(signal.SIGKILL))  # 1 is PR_SET_PDEATHSIG.
        if os.getppid() != parent:
            os._exit(1)  # The launcher ended before the request was made.
