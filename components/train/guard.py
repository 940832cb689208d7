"""Kills all that is left of a job once its launcher is gone, whatever ended it.

Synopsis:

    with guarding(token):
        subprocess.Popen(command, env={**os.environ, MARK: token})

The guard is a process of its own, since in a launcher that gets SIGKILL nothing runs any more. It waits for the end of
a pipe that only the launcher holds open. Then it kills every process that carries the token in its environment:
children inherit it, so this finds those that left the process group or the session too, as `timeout` and daemons do.
(Jenkins' ProcessTreeKiller looks for processes in the same way.)
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil

MARK = "TRAINER_RUN"
_LIMIT_S = 10.0


@contextlib.contextmanager
def guarding(token: str) -> Iterator[None]:
    """Kills every process with `MARK=token` in its environment when the block, or this process, ends."""
    guard = subprocess.Popen(
        [sys.executable, "-P", __file__, token],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Not with the mark of a job that this launcher may itself be part of.
        env={name: value for name, value in os.environ.items() if name != MARK},
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.stdin.close()
        guard.wait()


def kill_marked(token: str) -> None:
    """SIGKILLs the processes marked with `token` until none is left, for at most 10 s."""
    give_up = time.monotonic() + _LIMIT_S
    clean = 0
    # Twice: a process in the middle of exec has no environment.
    while clean < 2 and time.monotonic() < give_up:
        found = [process for process in psutil.process_iter() if _mark(process) == token]
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=0.1)
        clean = 0 if found else clean + 1


def _mark(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except (psutil.Error, OSError):
        return None  # Gone, or another user's.


if __name__ == "__main__":
    for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(_number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    kill_marked(sys.argv[1])
