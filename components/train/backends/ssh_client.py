"""Runs one replica on another host: this process writes what the replica writes, and ends with its exit code.

    python -m components.train.backends.ssh_client REQUEST

REQUEST is JSON: `host`, `ssh` (command line that runs `on_host` there), `code` (a directory to copy, or null,
and its name there), `status` (file on this machine), `variables` (names, of this process's environment), and `agent`
(what else `ssh_agent` has in its request). Standard library only: there is one such process for every replica.
"""

import contextlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from components.train.supervision import ssh_agent

_BOOT = "import sys; f = sys.stdin.buffer; exec(compile(f.read(int(f.readline())), 'training', 'exec'))"
_BEAT_S = 2.0
_CONNECTION_LOST = 255  # The exit code of ssh.
_TAKEN_AWAY = 128 + signal.SIGKILL


def on_host(python: str) -> str:
    """Returns a command for a host's shell that waits for `message` and runs it with `python`.

    Program and request travel over standard input: nothing needs to be quoted, and no list of processes shows it.
    """
    return shlex.join(["exec", python, "-c", _BOOT])


def message(program: ModuleType, request: Mapping[str, Any]) -> bytes:
    """Returns what to write to the standard input of `on_host`: a program, and the argument of its `main`."""
    source = Path(program.__file__).read_bytes()
    return b"%d\n%s%s\n" % (len(source), source, json.dumps(request).encode())


def run(request: dict[str, Any]) -> int:
    """Copies the code, runs the replica and passes on what it writes; returns its exit code."""
    archive = pack_code(request["code"])
    env = {name: os.environ[name] for name in request["variables"]}
    agent_request = {**request["agent"], "env": env, "archive_bytes": len(archive)}
    # Not in our process group: a signal to it is for the replica, not for the connection.
    ssh = subprocess.Popen(
        request["ssh"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, start_new_session=True
    )

    def send(text: bytes) -> None:
        with contextlib.suppress(OSError):  # The connection is lost, and its end says so.
            ssh.stdin.write(text)

    def beat() -> None:
        while True:
            send(b"\n")
            time.sleep(_BEAT_S)

    send(message(ssh_agent, agent_request) + archive)
    signal.signal(signal.SIGTERM, lambda *_: send(b"stop\n"))
    threading.Thread(target=beat, daemon=True).start()
    for line in io.TextIOWrapper(ssh.stderr, encoding="utf-8", errors="replace"):
        if line.startswith(ssh_agent.ANSWER):
            with contextlib.suppress(OSError):
                new = Path(request["status"] + ".new")
                new.write_text(json.loads(line.removeprefix(ssh_agent.ANSWER)))
                new.replace(request["status"])
        else:
            print(line, end="", flush=True)
    code = ssh.wait()
    if 0 <= code < _CONNECTION_LOST:
        return code
    print(f"the connection to host {request['host']} is lost")
    return _TAKEN_AWAY


def pack_code(directories: Mapping[str, str]) -> bytes:
    """Returns a tar archive of directories by name that its owner alone may read, without secrets and history."""

    def member(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        name = Path(info.name).name
        if name.startswith(".env") or name in (".git", "__pycache__"):
            return None
        mode = 0o700 if info.isdir() or info.mode & 0o100 else 0o600
        return info.replace(mode=mode, uid=0, gid=0, uname="", gname="", deep=False)

    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
        for name, directory in directories.items():
            archive.add(directory, name, filter=member)
    return file.getvalue()


if __name__ == "__main__":
    sys.exit(run(json.loads(sys.argv[1])))
