"""The launcher's part beside a container.

    python -m components.train.backends.docker_client prepare NETWORK     # an empty network
    python -m components.train.backends.docker_client run NAME LINE...    # `docker run` as LINE; its container's exit code
    python -m components.train.backends.docker_client remove NETWORK      # the network and all its containers

Containers carry the network's name as the label `training.network`, by which what is left of them is removed.
"""

import json
import signal
import subprocess
import sys

from common.container_engine import docker, remove_containers

LABEL = "training.network"
_ENGINE_FAILED = (125, 126, 127)  # Of `docker run`, if the container never ran.
_WRONG = 2
_TERMINATED = 128 + signal.SIGTERM


def prepare(network: str) -> int:
    """Makes a network, in place of what an earlier launcher of the same job may have left; returns 0 if it is there."""
    remove(network)
    done = docker("network", "create", network)
    if done.returncode:
        reason = done.stderr.strip().splitlines() or ["no answer"]
        print(f"error: docker network create: {reason[-1]}", file=sys.stderr)
        return _WRONG
    return 0


def remove(network: str) -> int:
    """Removes a network and its containers; returns 0 if nothing is left."""
    remove_containers(f"{LABEL}={network}")
    docker("network", "rm", network)
    return int(docker("network", "inspect", network).returncode == 0)


def run(name: str, *line: str) -> int:
    """Runs a container in the foreground; returns its exit code, 128+n after signal n."""
    stop_signals: list[int] = []
    # The client of the engine gets the signal too, being of our process group, and passes it on.
    signal.signal(signal.SIGTERM, lambda number, _: stop_signals.append(number))
    docker("rm", "--force", "--volumes", name)
    code = subprocess.run(line, stdin=subprocess.DEVNULL).returncode
    inspection = docker("inspect", "--type", "container", "--format", "{{json .State}}", name)
    state = {} if inspection.returncode else json.loads(inspection.stdout)
    if state.get("OOMKilled"):
        print(f"{name} was killed: out of memory. Give --memory-gb more, or the job a smaller batch", flush=True)
    if state.get("Status") in ("exited", "dead"):
        return int(state["ExitCode"])
    if stop_signals:
        return _TERMINATED
    if code < 0:
        print(f"the engine's client of {name} was killed by signal {-code}", flush=True)
        return 128 - code
    return _WRONG if code in _ENGINE_FAILED else code or 1


if __name__ == "__main__":
    sys.exit({"prepare": prepare, "run": run, "remove": remove}[sys.argv[1]](*sys.argv[2:]))
