"""Kills and removes all that is left of a job once the launcher, which started it, has ended.

    guard = Guard()
    subprocess.Popen(command, env={**os.environ, MARK: guard.mark("worker-0")})
    guard.close()

The guard is a process of its own, since a launcher that gets SIGKILL cannot clean up. It waits for
the end of a pipe that only the launcher holds open. Then it kills every process that has the job's
mark in its environment: children inherit it, so this also finds those that left the process group
or the session, as `timeout` and daemons do. (Jenkins' ProcessTreeKiller looks for processes in the
same way.) Finally it runs the job's teardown command, for what runs elsewhere, such as containers,
and deletes the job's temporary directory, in which TensorFlow leaves files when its process is
killed.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import psutil

MARK = "TRAINER_RUN"
_TEARDOWN_S = 30.0
_KILL_S = 10.0
_PAUSE_S = 0.1
_KERNEL = 2  # Id, on Linux, of the kernel's process that is the parent of its threads.


class Guard:
    """Starts the guard process, which kills all marked processes once this process has ended.

    It does the same when `close` is called.

    Attributes:
      token: Mark of the job; the marks of its replicas begin with it.
      scratch: Directory for temporary files of the replicas; the guard deletes it.
    """

    def __init__(self, *locks: int, teardown: Sequence[str] = ()) -> None:
        """Starts the guard process.

        Args:
          *locks: Descriptors of locks, which the guard keeps open until it has finished.
          teardown: Command that the guard runs after it has killed the processes; at most 30
            seconds.
        """
        self.token = f"{os.getpid()}-{time.time_ns()}"
        self.scratch = tempfile.mkdtemp(prefix="training-")
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, self.token, self.scratch, *teardown],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # The launcher may itself be part of a job, whose mark the guard must not have.
            env={name: value for name, value in os.environ.items() if name != MARK},
            start_new_session=True,
            pass_fds=locks,
        )

    def mark(self, name: str) -> str:
        """Returns `TOKEN:NAME`, the value of the environment variable `MARK` in a replica."""
        return f"{self.token}:{name}"

    def close(self) -> None:
        """Makes the guard kill the processes and clean up, and waits until it has finished."""
        self._process.communicate()


def kill_marked(*marks: str) -> None:
    """Sends SIGKILL to all processes with one of these marks until none is left, or for 10 s.

    Args:
      *marks: Values of the environment variable `MARK`. A mark also stands for those that begin
        with it and a colon, so that a job's token stands for all its replicas.
    """
    beginnings = tuple(f"{mark}:" for mark in marks)
    give_up = time.monotonic() + _KILL_S
    clean = 0
    while clean < 2 and time.monotonic() < give_up:
        marked, is_unsure = [], False
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):  # Gone, or another user's.
                environ = process.environ()
                if f"{environ.get(MARK)}:".startswith(beginnings):
                    marked.append(process)
                    process.kill()
                # A process shows neither environment nor command line in the middle of exec and
                # while it ends, so it may be a marked one. Threads of the kernel never show them.
                is_unsure |= (
                    not environ
                    and not process.cmdline()
                    and _KERNEL not in (process.pid, process.ppid())
                )
        psutil.wait_procs(marked, timeout=_PAUSE_S)
        if is_unsure:
            time.sleep(_PAUSE_S)
        clean = 0 if marked or is_unsure else clean + 1


def _main(token: str, scratch: str, *teardown: str) -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()  # Returns when the launcher has closed its end of the pipe, or has ended.
    kill_marked(token)
    if teardown:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(teardown, stdin=subprocess.DEVNULL, timeout=_TEARDOWN_S)
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
