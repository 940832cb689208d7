"""Runs a Python program of ours on a host, over ssh, without a copy of it there.

    process = subprocess.Popen([*ssh_line, on_host()], stdin=subprocess.PIPE)
    process.stdin.write(message(replica_agent, {"command": ["python", "-m", "trainer.task"]}))

Program and request travel over standard input: nothing needs to be quoted, and nobody reads it in a list of
processes. Standard library only.
"""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from components.train.backends.hosts.replica_agent import ANSWER

_BOOT = "import sys; f = sys.stdin.buffer; exec(compile(f.read(int(f.readline())), 'training', 'exec'))"
_ARGUMENT_BYTES = 100_000


def on_host(python: str | None = None) -> str:
    """Command line for a host's shell: waits for `message` and runs it, with `python` or else the best that there is."""
    choice = f"p={shlex.quote(python or sys.executable)}"
    if not python:
        choice += '; [ -x "$p" ] || p=python3'
    script = f'{choice}; exec "$p" -c {shlex.quote(_BOOT)}'
    return f"exec sh -c {shlex.quote(script)}"


def message(program: ModuleType, request: Mapping[str, Any]) -> bytes:
    """What to write to the standard input of `on_host`: a program, and what to tell its `main`."""
    source = Path(program.__file__).read_bytes()
    return b"%d\n%s%s\n" % (len(source), source, json.dumps(request).encode())


def arguments(request: dict[str, Any]) -> tuple[str, ...]:
    """A request as arguments of a process of this machine: several, since Linux takes no more than 128 KiB in one."""
    text = json.dumps(request)
    return tuple(text[start : start + _ARGUMENT_BYTES] for start in range(0, len(text), _ARGUMENT_BYTES))


def from_arguments(words: Sequence[str]) -> dict[str, Any]:
    """What `arguments` made them of."""
    return json.loads("".join(words))


def answer(line: str) -> Any | None:
    """What a program of ours says in this line, or None if the line is of something else, a login script for example."""
    return json.loads(line[len(ANSWER) :]) if line.startswith(ANSWER) else None
