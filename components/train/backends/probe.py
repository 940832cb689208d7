"""What a machine has. The launcher also sends this program to a host over ssh before anything starts: standard library
only, for Python 3.8 and newer.

The request has how many `ports` are needed, and `marker`, a file that should be there, or null. The answer has `executable`,
`tensorflow` (its version, or null), `cores`, `gpus` (ids), free `ports`, and whether the host `sees_marker`.
"""

import contextlib
import itertools
import json
import os
import random
import socket
import subprocess
import sys
from importlib import metadata

ANSWER = "training:"
VISIBLE = "CUDA_VISIBLE_DEVICES"
FIRST_PORT = 10_001
_USUAL_LAST_PORT = 32_767


def main(request):
    """Prints the answer in one line."""
    answer = {
        "executable": sys.executable,
        "tensorflow": tensorflow_version(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "gpus": usable_gpus(limit_s=5),
        "ports": free_ports(request["ports"]),
        "sees_marker": not request["marker"] or os.path.exists(request["marker"]),
    }
    print("\n" + ANSWER + json.dumps(answer), flush=True)


def tensorflow_version():
    """Of the package that is installed, or None."""
    for package in ("tensorflow-cpu", "tensorflow"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(package)
    return None


def usable_gpus(limit_s=20):
    """Ids of the GPUs that this process may use: what CUDA_VISIBLE_DEVICES names, else all that the driver lists."""
    if VISIBLE in os.environ:
        ids = [part.strip() for part in os.environ[VISIBLE].split(",")]
        return [each for each in ids if each not in ("", "-1")]
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        listing = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=limit_s)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [] if listing.returncode else listing.stdout.decode().split()


def last_port(ranges="/proc/sys/net/ipv4/ip_local_port_range"):
    """The last port below those that the system gives to outgoing connections."""
    try:
        with open(ranges) as file:
            last = int(file.read().split()[0]) - 1
    except (OSError, ValueError):
        return _USUAL_LAST_PORT
    # Some machines give out nearly every port; then the usual range is as good as any.
    return last if last > FIRST_PORT + 1000 else _USUAL_LAST_PORT


def free_ports(count):
    """Ports that nobody listens at: at random, as two launchers may ask at the same time and neither holds what it gets."""
    return list(itertools.islice(filter(is_free, random.sample(range(FIRST_PORT, last_port() + 1), 500)), count))


def is_free(port):
    """Whether nobody listens there."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


if __name__ == "__main__":
    main(json.loads(sys.stdin.buffer.readline()))
