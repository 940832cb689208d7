"""The launcher's part beside a container: run as a program of its own, with nothing but the standard library.

    python engine_client.py prepare NETWORK PATH   # an empty network, and no container of an earlier launcher
    python engine_client.py run NAME LINE...       # `docker run` as LINE; ends with the container's exit code
    python engine_client.py remove NETWORK         # the network and every container that belongs to it

Containers belong to the job whose network they carry as the label `training.network`: so they are found when neither
the launcher nor its guard could remove them.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

LABEL = "training.network"
_PATH_LABEL = "training.job-dir"
_ENGINE_FAILED = (125, 126, 127)  # Of `docker run`, if the container never ran.
_WRONG = 2
_TERMINATED = 128 + signal.SIGTERM


def prepare(network: str, path: str) -> int:
    """Makes the network; what an earlier launcher left of it goes first."""
    remove(network)
    labels = ["--label", f"{LABEL}={network}", "--label", f"{_PATH_LABEL}={path}"]
    done = _docker("network", "create", *labels, network)
    if done.returncode:
        print(f"error: docker network create: {_last(done.stderr)}", file=sys.stderr)
    return done.returncode


def remove(network: str) -> int:
    """Removes the network and its containers; returns 0 if nothing is left."""
    left = _docker("ps", "--all", "--quiet", "--filter", f"label={LABEL}={network}").stdout.split()
    if left:
        _docker("rm", "--force", "--volumes", *left)
    _docker("network", "rm", network)
    there = _docker("network", "ls", "--quiet", "--filter", f"label={LABEL}={network}")
    return there.returncode or int(bool(there.stdout.strip()))


def run(name: str, *line: str) -> int:
    """Runs a container in the foreground; returns its exit code, 128+n after signal n."""
    told: list[int] = []
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        # The client of the engine gets the signal too, being of our process group, and passes it on.
        signal.signal(number, lambda number, _: told.append(number))
    _docker("rm", "--force", "--volumes", name)
    code = subprocess.run(line, stdin=subprocess.DEVNULL).returncode
    state = _state(name)
    if state.get("OOMKilled"):
        print(f"{name} was killed: out of memory. Give --memory-gb more, or the job a smaller batch", flush=True)
    if state.get("Status") in ("exited", "dead"):
        return int(state["ExitCode"])
    if told:
        return _TERMINATED
    if code < 0:
        print(f"the engine's client of {name} was killed by signal {-code}", flush=True)
        return 128 - code
    return _WRONG if code in _ENGINE_FAILED else code or 1


def _state(name: str) -> dict[str, Any]:
    done = _docker("inspect", "--type", "container", "--format", "{{json .State}}", name)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def _docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["no answer"])[-1]


def _main(verb: str, arguments: Sequence[str]) -> int:
    return {"prepare": prepare, "run": run, "remove": remove}[verb](*arguments)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], sys.argv[2:]))
