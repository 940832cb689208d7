"""The launcher's part beside a replica on another host: a process of its own, which lives as long as the replica does.

    python -m components.train.backends.hosts.replica_client run REQUEST      # ends with the replica's exit code
    python -m components.train.backends.hosts.replica_client clean REQUEST    # nothing is left of it on its host afterwards

REQUEST is JSON, in one argument or several: `host`, `ssh` (command line that runs `remote_python.on_host` there), `mark`, `status` (file on this machine),
`variables` (to pass on, of this process's environment), `mirror` (paths here and there, by name), `back` (null, or what
`transfer` is then to bring back), and `command`, `path`, `cwd` as `replica_agent` has them. Standard library only: there is
one such process for every replica.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from typing import Any

from components.train.backends.hosts import remote_python, replica_agent, transfer

_BEAT_S = 0.5
_OF_KEEPER = ("mark", "command", "env", "path", "cwd", "mirror", "files")
_LOST = 128 + signal.SIGKILL  # A machine that is gone was taken away.


def run(request: dict[str, Any]) -> int:
    """Runs the replica and passes on what it writes; returns its exit code."""
    hear, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    request["env"] = {name: os.environ[name] for name in request["variables"] if name in os.environ}
    # Not of our process group: a signal to the launcher's replica is not for the connection.
    process = subprocess.Popen(
        request["ssh"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, start_new_session=True
    )
    mirror = replica_agent.Mirror(
        {"status": request["status"], **{name: here for name, (here, _) in request["mirror"].items()}}
    )
    # What is here holds, and what a host has kept of an earlier start does not.
    request["files"] = dict.fromkeys(request["mirror"]) | dict(mirror.changed())
    request["mirror"] = {name: there for name, (_, there) in request["mirror"].items()}
    _send(process, remote_python.message(replica_agent, {key: request[key] for key in _OF_KEEPER}))
    code, last, rest = None, "", b""
    with selectors.DefaultSelector() as selector:
        selector.register(hear, selectors.EVENT_READ)
        selector.register(process.stderr, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select(_BEAT_S)]
            _say(process, **({"stop": True} if hear in ready and os.read(hear, 64) else {}))
            for change in mirror.changed():
                _say(process, file=change)
            if process.stderr not in ready:
                continue
            if not (chunk := process.stderr.read(65_536)):
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in (line.decode("utf-8", "replace").rstrip("\r") for line in lines):
                words = remote_python.answer(line)
                if words is None:
                    print(line, flush=True)
                    last = line
                elif "file" in words:
                    mirror.write(*words["file"])
                else:
                    code = words["ended"]
    process.wait()
    if code is None:
        print(f"the connection to host {request['host']} is lost: {last or f'ssh ended with {process.returncode}'}")
    return _LOST if code is None else code


def clean(request: dict[str, Any]) -> int:
    """Kills what is left of the replica on its host, and brings back what it made; returns 0 if all of that is done."""
    message = remote_python.message(replica_agent, {"mark": request["mark"]})
    code = subprocess.run(
        request["ssh"], input=message, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ).returncode
    if code:
        print(f"host {request['host']}: cannot end what runs there", file=sys.stderr)
    fetched = transfer.main("back", request["back"]) if request["back"] else 0
    return code or fetched


def _say(process: subprocess.Popen[bytes], **words: Any) -> None:
    _send(process, json.dumps(words).encode() + b"\n")


def _send(process: subprocess.Popen[bytes], words: bytes) -> None:
    with contextlib.suppress(OSError):  # The connection is lost, as its end will tell.
        process.stdin.write(words)


if __name__ == "__main__":
    sys.exit({"run": run, "clean": clean}[sys.argv[1]](remote_python.from_arguments(sys.argv[2:])))
