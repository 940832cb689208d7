"""Runs one replica on its host and watches the connection to the launcher, which sends this program over ssh.

Standard library only, for Python 3.8 and newer. Standard input has the request (a line of JSON: `mark`, `command`, in which
`python` stands for the Python here, `env`, `cwd`), the code of the job (a tar archive of `archive_bytes`), and then a line now and then as long as the launcher lives: `stop` asks the replica to save
and end. When the lines end, or none comes for 30 s, the replica is killed: nothing outlives the connection.

The replica writes to standard output. Standard error has each new content of its status file, in a line of its own.
"""

import contextlib
import ctypes
import functools
import glob
import io
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

ANSWER = "training:"  # What a line for the launcher begins with.
MARK = "TRAINING_JOB"  # Environment variable of a replica and all that it starts.
STATUS = "TRAINER_STATUS"
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # Not after a fork, where loading may hang.
SILENCE_S = 30.0
STATUS_BYTES = 65536
KILL_S = 10.0
POLL_S = 0.1
LINGER_S = 1.0  # A failure may come of another replica's death, on another host, which must be known first.


def main(request):
    """Runs the replica; returns its exit code as a shell has it."""
    mark = request["mark"]
    kill_marked(mark)  # A start before this one may not know yet that its connection is lost.
    os.umask(0o077)
    scratch = os.path.join(tempfile.gettempdir(), "training-" + mark)
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch + "/code")
    try:
        archive = io.BytesIO(sys.stdin.buffer.read(request["archive_bytes"]))
        with tarfile.open(fileobj=archive) as code:
            code.extractall(scratch + "/code")
        child = start(request, scratch)
        threading.Thread(target=obey, args=[child], daemon=True).start()
        code = watch(child, scratch + "/status.json")
        kill_marked(mark)
        return code
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def start(request, scratch):
    """Starts the replica, in a session of its own."""
    code = scratch + "/code"
    env = {**os.environ, **request["env"], MARK: request["mark"], STATUS: scratch + "/status.json", "TMPDIR": scratch}
    env["PYTHONPATH"] = f"{code}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
    return subprocess.Popen(
        [sys.executable if word == request["python"] else word for word in request["command"]],
        cwd=request["cwd"] if os.path.isdir(request["cwd"]) else code,
        env=env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=functools.partial(die_with_parent, os.getpid()),
    )


def die_with_parent(parent):
    """Has Linux kill this process when its parent's thread ends; for a new process, before it becomes the replica."""
    if LIBC:
        LIBC.prctl(1, ctypes.c_ulong(signal.SIGKILL))
        if os.getppid() != parent:
            os._exit(1)  # It ended before it was asked.


def obey(child):
    """Stops the replica when the launcher asks for it, and kills it when the connection is lost."""
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


def watch(child, status_path):
    """Reports the replica's status until it ends; returns its exit code."""
    status = None
    while child.poll() is None:
        time.sleep(POLL_S)
        with contextlib.suppress(OSError), open(status_path, encoding="utf-8", errors="replace") as file:
            text = file.read(STATUS_BYTES)
            if text != status:
                status = text
                print(ANSWER + json.dumps(text), file=sys.stderr, flush=True)
    if child.returncode < 0:
        return 128 - child.returncode
    if 0 < child.returncode < 128:
        time.sleep(LINGER_S)
    return min(child.returncode, 254)  # Of ssh, 255 is a lost connection.


def kill_marked(mark):
    """Kills the processes that carry the mark until none is left, for at most 10 s."""
    variable = f"{MARK}={mark}".encode()
    give_up_at = time.monotonic() + KILL_S
    clean_rounds = 0
    while clean_rounds < 2 and time.monotonic() < give_up_at:  # Twice: during exec a process has no environment.
        clean_rounds += 1
        for path in glob.glob("/proc/[0-9]*/environ"):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                if variable in file.read().split(b"\0"):
                    clean_rounds = 0
                    os.kill(int(path.split("/")[2]), signal.SIGKILL)
        time.sleep(0.02)


if __name__ == "__main__":
    exit_code = main(json.loads(sys.stdin.buffer.readline()))
    sys.stdout.flush()
    os._exit(exit_code)  # The thread that reads would make Python's own end complain.
