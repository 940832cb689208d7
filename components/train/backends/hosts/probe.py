"""What the launcher asks a host before anything starts; it sends this program over ssh. Standard library only.

The request names `ports` (how many), `there` (paths), and `alike` (files whose content matters). The answer has `python`
and `versions` of packages, `cores`, `gpus` (ids), free `ports`, whether each path is `there`, the SHA-256 of each file that
is, or null, and whether it has `rsync`.
"""

import hashlib
import json
import os
import platform
import random
import shutil
import socket
import subprocess
import sys
from importlib import metadata

ANSWER = "training:"
PACKAGES = ("tensorflow", "tensorflow-cpu", "keras")
FIRST_PORT, LAST_PORT = 10001, 32767


def main(request):
    """Prints the answer in one line."""
    answer = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "versions": {name: version for name in PACKAGES if (version := version_of(name))},
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "gpus": gpus(),
        "ports": free_ports(request["ports"]),
        "there": [os.path.exists(path) for path in request["there"]],
        "alike": [digest(path) for path in request["alike"]],
        "rsync": bool(shutil.which("rsync")),
    }
    print("\n" + ANSWER + json.dumps(answer), flush=True)


def version_of(package):
    """Of an installed package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def gpus():
    """Ids of the GPUs that the driver lists."""
    try:
        command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        return (
            subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=5)
            .stdout.decode()
            .split()
        )
    except (OSError, subprocess.TimeoutExpired):
        return []


def free_ports(count):
    """Ports that nobody listens at, below those that the system gives to outgoing connections.

    At random, as two launchers may ask at the same time and neither holds what it gets.
    """
    last = LAST_PORT
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            first_ephemeral = int(file.read().split()[0])
        last = first_ephemeral - 1 if first_ephemeral > FIRST_PORT + 1000 else LAST_PORT
    except (OSError, ValueError):
        pass
    free = []
    for port in random.sample(range(FIRST_PORT, last + 1), 500):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
                free.append(port)
            except OSError:
                continue
        if len(free) == count:
            break
    return free[:count]


def digest(path):
    """SHA-256 (hexadecimal) of a file, or None if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


if __name__ == "__main__":
    main(json.loads(sys.stdin.buffer.readline()))
