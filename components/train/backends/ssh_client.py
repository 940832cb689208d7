"""Client process on the launcher's machine for one replica on another host.

    python -m components.train.backends.ssh_client copy DIRECTORIES
    python -m components.train.backends.ssh_client run REQUEST

`copy` takes a JSON object {target: source, ...} of directories. `run` exits with the replica's exit
code. Its REQUEST is a JSON object:

* `host`: name of the host, for messages;
* `ssh`: command line that runs the command of `on_host` there;
* `variables`: names of the variables that are passed on from this process's environment;
* `command` and `cwd`: the replica's command and working directory.

There is one such process for every replica, so this module imports little beside the standard
library.
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
# A lost connection counts as a preemption, as if the replica had been killed from outside.
_TAKEN_AWAY = 128 + signal.SIGKILL


def on_host(python: str) -> str:
    """Returns a command for a host's shell that reads a program from standard input and runs it.

    The function `message` makes the text to send there: the program and its request. So they need
    no quoting, and the host's list of processes does not show them.

    Args:
      python: Path of the Python interpreter on the host.
    """
    return shlex.join(["exec", python, "-c", _BOOT])


def message(request: Mapping[str, Any]) -> str:
    """Returns the text to write to the standard input of `on_host`.

    It is the size of the agent's source in bytes, a line end, the source, which must be ASCII, and
    the request in one line of JSON.
    """
    source = Path(host_agent.__file__).read_text("ascii")
    return f"{len(source)}\n{source}{json.dumps(request)}\n"


def copy(directories: Mapping[str, str]) -> int:
    """Copies directories into one new directory, which only its owner may read.

    Entries `.env*`, `.git`, `__pycache__`, and the new directory itself if it lies in a source, are
    left out. Symbolic links are copied as links.

    Args:
      directories: Source by target, at least one; all targets have the same parent, which must not
        exist yet.

    Returns:
      0, the exit code.

    Raises:
      OSError: If the parent of the targets exists, or something cannot be read or written.
    """
    place = Path(next(iter(directories))).parent
    place.mkdir(mode=0o700, parents=True)
    ignore = shutil.ignore_patterns(".env*", ".git", "__pycache__", place.name)
    for target, source in directories.items():
        shutil.copytree(source, target, symlinks=True, ignore=ignore)
    return 0


def run(request: dict[str, Any]) -> int:
    """Runs a replica on its host until it ends, and passes SIGTERM on to it.

    Args:
      request: Mapping with `host`, the name for messages; `ssh`, the command line of the
        connection; `variables`, names of variables of this process's environment, all of which are
        set, to pass on; and the replica's `command` and `cwd`.

    Returns:
      The replica's exit code (128+n if signal n killed it), or 137 if the connection is lost.

    Raises:
      OSError: If the command line `ssh` cannot be started.
    """
    env = {name: os.environ[name] for name in request["variables"]}
    # The connection is in a session of its own, since a signal to this process group is meant for
    # the replica.
    ssh = subprocess.Popen(request["ssh"], stdin=subprocess.PIPE, bufsize=0, start_new_session=True)

    def send(text: str) -> None:
        with contextlib.suppress(OSError):  # The connection is lost, and its end says so.
            assert ssh.stdin
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
