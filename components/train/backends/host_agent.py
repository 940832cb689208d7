"""Program that runs on another host: reports its cores and GPUs, or runs one replica there.

The launcher sends this source over ssh. It uses the standard library only, works with Python 3.8
and newer, and is ASCII. The first line of standard input is a request as JSON:

* A request with `path` asks what the host has. The answer is a line with its cores and GPUs, or an
  error if the host does not have that file.
* A request with `command`, `env` and `cwd` runs a replica, whose output becomes this program's.
  The launcher then sends a line every few seconds. The line `stop` asks the replica to save and
  end. If standard input ends or is silent for `SILENCE_S`, the replica is killed. So the old
  process never meets the new one when a replica starts again elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from typing import Any

# Begins the line with the answer, as a login script of the host may print lines too.
ANSWER = "training:"
VISIBLE = "CUDA_VISIBLE_DEVICES"
SILENCE_S = 10.0  # Shorter than the time after which ssh reports a lost connection.


def main(request: dict[str, Any]) -> int:
    """Answers a request, or runs its replica.

    The answer is a line on standard output: `training:` and a JSON object with `cores` (a number)
    and `gpus` (a list of ids).

    While the replica runs, `stop` in standard input sends it SIGTERM. The end of standard input, or
    10 s of silence there, kills it.

    Args:
      request: Mapping with `path`, or with `command`, `env` (additional variables) and `cwd`.

    Returns:
      0 after an answer, or the replica's exit code, at most 254 (128+n if signal n killed it).

    Raises:
      SystemExit: If there is no file `path`; the reason goes to standard error.
      OSError: If the program of the replica cannot be started.
    """
    if "command" in request:
        return run(request)
    if not os.path.exists(request["path"]):
        sys.exit(f"does not share {os.path.dirname(request['path'])}")
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    print("\n" + ANSWER + json.dumps({"cores": cores, "gpus": usable_gpus()}))
    return 0


def usable_gpus() -> list[str]:
    """Returns the ids of the GPUs that this process may use, as strings.

    They are those of CUDA_VISIBLE_DEVICES if it is set, without -1, else all that `nvidia-smi`
    lists; none if that program is missing, fails, or takes longer than 10 s.
    """
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


def run(request: dict[str, Any]) -> int:
    """Runs a replica until it ends, then kills what is left of its process group.

    Meanwhile `stop` in standard input sends it SIGTERM, and the end of standard input, or 10 s of
    silence there, kills it.

    Args:
      request: Mapping with `command`, `env` (additional environment variables) and `cwd`, which is
        ignored if there is no such directory.

    Returns:
      The replica's exit code, at most 254, or 128+n if signal n killed it.

    Raises:
      OSError: If the program cannot be started.
    """
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
    # ssh itself exits with 255 if the connection is lost, so a replica must not.
    return min(code, 254) if code >= 0 else 128 - code


def obey(child: subprocess.Popen[bytes]) -> None:
    """Reads standard input: sends SIGTERM to the replica for `stop`, kills it at the end.

    Both signals go to its process group. Returns after the kill, when standard input has ended or
    was silent for 10 s.
    """
    while select.select([sys.stdin], [], [], SILENCE_S)[0]:
        text = sys.stdin.buffer.read1(4096)  # type: ignore[union-attr]  # It has the method.
        if not text:
            break
        if b"stop" in text:
            signal_group(child, signal.SIGTERM)
    signal_group(child, signal.SIGKILL)


def signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    """Sends a signal to the replica's process group; does nothing if no process is left in it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


if __name__ == "__main__":
    exit_code = main(json.loads(sys.stdin.buffer.readline()))
    sys.stdout.flush()
    # A normal exit could fail, since the thread still reads standard input.
    os._exit(exit_code)
