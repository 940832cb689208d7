"""Program that the launcher sends to a host over ssh: reports what the host has, or runs one replica there.

Standard library only, for Python 3.8 and newer. The first line of standard input is the request, as
JSON. One with `path` is answered by a line with the host's cores and GPUs, if it has that file. One
with `command`, `env` and `cwd` is a replica to run, whose output is this program's; after it come
lines for as long as the launcher lives, and `stop` asks the replica to save and end. It is killed
when standard input ends, or is silent for longer than it takes ssh to give up a lost connection: a
replica that starts again elsewhere never meets the old one.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading

ANSWER = "training:"  # Begins the line with the answer; other lines are of a login script.
VISIBLE = "CUDA_VISIBLE_DEVICES"
SILENCE_S = 10.0


def main(request):
    """Does what the request says; returns the exit code."""
    if "command" in request:
        return run(request)
    if not os.path.exists(request["path"]):
        sys.exit(f"does not share {os.path.dirname(request['path'])}")
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    print("\n" + ANSWER + json.dumps({"cores": cores, "gpus": usable_gpus()}))
    return 0


def usable_gpus():
    """Returns the ids of the GPUs that this process may use: those of CUDA_VISIBLE_DEVICES, else all of the driver's."""
    if VISIBLE in os.environ:
        ids = [part.strip() for part in os.environ[VISIBLE].split(",")]
        return [each for each in ids if each not in ("", "-1")]
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        return (
            subprocess.check_output(command, stderr=subprocess.DEVNULL, timeout=10).decode().split()
        )
    except (OSError, subprocess.SubprocessError):
        return []


def run(request):
    """Runs the replica; returns its exit code as a shell has it."""
    child = subprocess.Popen(
        request["command"],
        cwd=request["cwd"] if os.path.isdir(request["cwd"]) else None,
        env={**os.environ, **request["env"]},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    threading.Thread(target=obey, args=[child], daemon=True).start()
    code = child.wait()
    signal_group(child, signal.SIGKILL)
    return min(code, 254) if code >= 0 else 128 - code  # Of ssh, 255 is a lost connection.


def obey(child):
    """Stops the replica when the launcher asks for it, and kills it when the launcher is gone."""
    while select.select([sys.stdin], [], [], SILENCE_S)[0]:
        text = sys.stdin.buffer.read1(4096)
        if not text:
            break
        if b"stop" in text:
            signal_group(child, signal.SIGTERM)
    signal_group(child, signal.SIGKILL)


def signal_group(child, number):
    """Signals the replica and those of its children that are in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


if __name__ == "__main__":
    exit_code = main(json.loads(sys.stdin.buffer.readline()))
    sys.stdout.flush()
    os._exit(exit_code)  # The thread that reads would make Python's own end complain.
