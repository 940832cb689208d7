"""Removes all that is left of a job once the process that started it is gone, whatever ended that.

    guard = Guard()
    subprocess.Popen(command, env={**os.environ, MARK: guard.mark("worker-0")})
    guard.close()

The guard is a process of its own, since in a launcher that gets SIGKILL nothing runs any more. It
waits for the end of a pipe that only the launcher holds open. Then it kills every process that
carries the job's mark in its environment: children inherit it, so this finds those that left the
process group or the session too, as `timeout` and daemons do. (Jenkins' ProcessTreeKiller looks for
processes in the same way.) Last it runs the job's teardown, for what runs elsewhere: containers;
and it deletes the job's temporary directory, since TensorFlow leaves files in it when its process
is killed.
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
_KERNEL = 2  # Process of the kernel on Linux that is the parent of its threads.


class Guard:
    """The launcher's end of the guard: once it is closed, or this process ends, nothing that was marked stays behind."""

    def __init__(self, *locks: int, teardown: Sequence[str] = ()) -> None:
        """Starts the guard; it keeps descriptors of locks open until its work is done, and runs `teardown` at its end."""
        # The job's mark; those of its replicas begin with it.
        self.token = f"{os.getpid()}-{time.time_ns()}"
        self.scratch = tempfile.mkdtemp(
            prefix="training-"
        )  # For the temporary files of the replicas.
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, self.token, self.scratch, *teardown],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Not with the mark of a job that this launcher may itself be part of.
            env={name: value for name, value in os.environ.items() if name != MARK},
            start_new_session=True,
            pass_fds=locks,
        )

    def mark(self, name: str) -> str:
        """Returns what the processes of a replica carry as `MARK`."""
        return f"{self.token}:{name}"

    def close(self) -> None:
        """Lets it do its work, and waits for it."""
        self._process.stdin.close()
        self._process.wait()


def kill_marked(*marks: str) -> None:
    """SIGKILLs the processes with one of these marks, or one below it, until none is left, for at most 10 s."""
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
                # In the middle of exec, and while it ends, a process has neither; threads of the
                # kernel never have.
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
    sys.stdin.read()
    kill_marked(token)
    if teardown:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(teardown, stdin=subprocess.DEVNULL, timeout=_TEARDOWN_S)
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
