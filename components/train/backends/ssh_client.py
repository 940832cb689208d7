"""The launcher's part beside a replica on another host.

    python -m components.train.backends.ssh_client copy DIRECTORIES   # JSON: {target: source, ...}
    python -m components.train.backends.ssh_client run REQUEST        # ends with the replica's exit code

REQUEST is JSON: `host`, `ssh` (command line that runs `on_host` there), `variables` (names, of this process's environment),
and the `command` and `cwd` of the replica. Standard library only: there is one such process for every replica.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.train.backends import host_agent

_BOOT = (
    "import sys; f = sys.stdin.buffer; exec(compile(f.read(int(f.readline())), 'training', 'exec'))"
)
_BEAT_S = 2.0
_CONNECTION_LOST = 255  # The exit code of ssh.
_TAKEN_AWAY = 128 + signal.SIGKILL


def on_host(python: str) -> str:
    """Returns a command for a host's shell that waits for `message` and runs it with `python`.

    Program and request travel over standard input: nothing needs to be quoted, and no list of
    processes shows it.
    """
    return shlex.join(["exec", python, "-c", _BOOT])


def message(request: Mapping[str, Any]) -> str:
    """Returns what to write to the standard input of `on_host`: the agent, which is ASCII, and its request."""
    source = Path(host_agent.__file__).read_text("ascii")
    return f"{len(source)}\n{source}{json.dumps(request)}\n"


def copy(directories: Mapping[str, str]) -> int:
    """Copies directories to targets in one new directory, which its owner alone may read; without secrets and history."""
    place = Path(next(iter(directories))).parent
    place.mkdir(mode=0o700, parents=True)
    ignore = shutil.ignore_patterns(".env*", ".git", "__pycache__", place.name)
    for target, source in directories.items():
        shutil.copytree(source, target, symlinks=True, ignore=ignore)
    return 0


def run(request: dict[str, Any]) -> int:
    """Runs the replica, and passes SIGTERM on to it; returns its exit code."""
    env = {name: os.environ[name] for name in request["variables"]}
    # Not in our process group: a signal to it is for the replica, not for the connection.
    ssh = subprocess.Popen(request["ssh"], stdin=subprocess.PIPE, bufsize=0, start_new_session=True)

    def send(text: str) -> None:
        with contextlib.suppress(OSError):  # The connection is lost, and its end says so.
            ssh.stdin.write(text.encode())

    signal.signal(signal.SIGTERM, lambda *_: send("stop\n"))
    send(message({"command": request["command"], "cwd": request["cwd"], "env": env}))
    while True:
        send("\n")
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = ssh.wait(_BEAT_S)
            break
    if 0 <= code < _CONNECTION_LOST:
        return code
    print(f"the connection to host {request['host']} is lost")
    return _TAKEN_AWAY


if __name__ == "__main__":
    sys.exit({"copy": copy, "run": run}[sys.argv[1]](json.loads(sys.argv[2])))
