"""Runs the commands that prepare a job: a network for its containers, code and data for its hosts."""

import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterable, Sequence

from components.train.supervision.output import LogReader, Output, last_lines
from components.train.supervision.reaper import MARK
from components.train.supervision.signals import ending, received
from trainer.base.errors import UserError

_POLL_S = 0.05


def prepare(
    commands: Iterable[Sequence[str]], mark: str, signals: socket.socket, output: Output, log_dir: str
) -> int | None:
    """Runs one after another, with a mark for the guard; what they write to standard error goes to a log and is shown.

    Returns the number of a signal that told this process to stop meanwhile, if one did. If one fails, its last line is
    what the `UserError` says.
    """
    for command in commands:
        log = open(os.path.join(log_dir, "setup.log"), "ab+", buffering=0)  # noqa: SIM115
        start = log.seek(0, os.SEEK_END)
        output.follow("setup", LogReader(log, start))
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": log}
        process = subprocess.Popen(command, env={**os.environ, MARK: mark}, start_new_session=True, **streams)
        while process.poll() is None:
            if select.select([signals], [], [], _POLL_S)[0] and (numbers := received(signals)):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return numbers[0]
        if process.returncode:
            last = "".join(last_lines(log, start, 1))
            raise UserError(last.removeprefix("error: ") or f"{command[0]}: {ending(process.returncode)}")
    return None
