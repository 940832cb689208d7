"""Runs the commands that prepare a job: a network for its containers, code and data for its hosts."""

import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterable, Sequence

from components.train.supervision.audience import Audience
from components.train.supervision.reaper import MARK
from components.train.supervision.signals import STOPPING, ending
from trainer.base.errors import UserError


def prepare(commands: Iterable[Sequence[str]], mark: str, signals: socket.socket, audience: Audience) -> int | None:
    """Runs one after another, with a mark for the guard, and shows the lines that they write to standard error.

    Returns the number of a signal that told this process to stop meanwhile, if one did. If one fails, its last line is
    what the `UserError` says.
    """
    for command in commands:
        environ = {**os.environ, MARK: mark}
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, env=environ, start_new_session=True, **streams) as process:
            number, last = _watch(process, signals, audience)
        if number:
            return number
        if process.returncode:
            raise UserError(last.removeprefix("error: ") or f"{command[0]}: {ending(process.returncode)}")
    return None


def _watch(process: subprocess.Popen[bytes], signals: socket.socket, audience: Audience) -> tuple[int | None, str]:
    """Returns at its end, with its last line, or at a signal, having killed it."""
    rest, last = b"", ""
    while True:
        ready = select.select([process.stderr, signals], [], [])[0]
        for number in signals.recv(64) if signals in ready else b"":
            if number in STOPPING:
                os.killpg(process.pid, signal.SIGKILL)
                return number, last
        if process.stderr in ready:
            if not (chunk := os.read(process.stderr.fileno(), 65_536)):
                return None, last
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if not (last := line.decode("utf-8", "replace")).startswith("error: "):
                    audience.lines("setup", [last])
