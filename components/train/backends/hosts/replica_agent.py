"""What watches a replica on its host; the launcher sends it over ssh. Standard library only, for Python 3.8 and newer.

The request names `mark`, `command`, `env`, `path` (a directory for Python), `cwd` (the first that is there), and `mirror`:
paths of files by name, and `files`, their contents. Lines that follow on standard input are JSON: `{"stop": true}` asks the
replica to save and end, `{"file": [name, text or null]}` tells of a file that is another elsewhere, `{}` that the launcher
still lives. When they end, or stay away, the replica is killed with all that it started: so nothing outlives the connection.
Without a `command` it only kills what carries the mark.

Standard error tells of the replica: `{"file": [name, text or null]}`, of the file `status` too, and `{"ended": exit code}`.
"""

import contextlib
import ctypes
import functools
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ANSWER, MARK, STATUS, PYTHON = "training:", "TRAINING_JOB", "TRAINER_STATUS", "{python}"
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # Not after a fork, where loading may hang.
SILENCE_S = 30.0
KILL_S = 10.0
LOOK_S = 0.25
LINGER_S = 1.0  # A failure may come of another replica's death, on another host, which is to be heard of first.


def main(request):
    """Runs the replica; returns 0 when nothing is left of it."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    left = sweep(request["mark"])
    if "command" not in request:
        return int(left)
    scratch = tempfile.mkdtemp(prefix="trainer-")
    try:
        status = os.path.join(scratch, "status.json")
        mirror = Mirror({"status": status, **request["mirror"]}, request["files"])
        heard = Heard(mirror)
        child = start(request, scratch, status)
        code = watch(child, heard, mirror)
        sweep(request["mark"])
        if 0 < code < 128:
            time.sleep(LINGER_S)
        tell(ended=code)
    except OSError as error:
        print(f"cannot start {error.filename or request['command'][0]}: {error.strerror}", flush=True)
        tell(ended=2)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


class Mirror:
    """Small files that are to be the same here and elsewhere: a replica's status, and those by which replicas agree."""

    def __init__(self, paths, contents=None):
        """`paths` by name; `contents` to begin with, in place of what is there, None for a file that must not be."""
        self.paths = paths
        self.known = {}
        self.lock = threading.Lock()
        for name, text in (contents or {}).items():
            self.write(name, text)

    def changed(self):
        """Names and contents of the files that are others than they were when this was last called or written."""
        with self.lock:
            now = {name: self.read(name) for name in self.paths}
            found = [(name, text) for name, text in now.items() if text != self.known.get(name)]
            self.known.update(found)
        return found

    def read(self, name):
        """Content of a file, or None."""
        try:
            with open(self.paths[name], encoding="utf-8") as file:
                return file.read()
        except (OSError, ValueError):
            return None

    def write(self, name, text):
        """Replaces a file as a whole, or removes it."""
        path = self.paths[name]
        with self.lock, contextlib.suppress(OSError):
            self.known[name] = text
            if text is None:
                os.unlink(path)
                return
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path + ".new", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(path + ".new", path)


class Heard(threading.Thread):
    """The launcher's words."""

    def __init__(self, mirror):
        super().__init__(daemon=True)
        self.mirror = mirror
        self.at = time.monotonic()
        self.stop = self.gone = False
        self.start()

    def run(self):
        """Listens until there is nothing more."""
        for line in sys.stdin.buffer:
            self.at = time.monotonic()
            words = json.loads(line)
            if "file" in words:
                self.mirror.write(*words["file"])
            self.stop = self.stop or "stop" in words
        self.gone = True


def start(request, scratch, status):
    """The replica's process, in a session of its own."""
    env = {**os.environ, "TMPDIR": scratch, **request["env"], MARK: request["mark"]}
    if STATUS in env:
        env[STATUS] = status
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [request["path"], env.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable if word == PYTHON else word for word in request["command"]],
        cwd=next(filter(os.path.isdir, request["cwd"])),
        env=env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=functools.partial(die_with_parent, os.getpid()),
    )


def die_with_parent(parent):
    """What a new process does before it becomes the replica: Linux kills it when the parent's thread ends."""
    if LIBC:
        LIBC.prctl(1, ctypes.c_ulong(signal.SIGKILL))
        if os.getppid() != parent:
            os._exit(1)  # It ended before it was asked.


def watch(child, heard, mirror):
    """Waits for the replica's end, and brings it about when told to; returns its exit code as a shell has it."""
    told, look_at = False, 0.0
    while child.poll() is None:
        if heard.gone or time.monotonic() - heard.at > SILENCE_S:
            signal_group(child, signal.SIGKILL)
        elif heard.stop and not told:
            told = True
            signal_group(child, signal.SIGTERM)
        if time.monotonic() >= look_at:
            look_at = time.monotonic() + LOOK_S
            relay(mirror)
        time.sleep(0.05)
    relay(mirror)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def signal_group(child, number):
    """Signals the replica and those of its children that are in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def relay(mirror):
    """Tells of the files that have changed."""
    for change in mirror.changed():
        tell(file=change)


def tell(**words):
    """Says something to the launcher, if it is still there."""
    with contextlib.suppress(OSError):
        sys.stderr.write(ANSWER + json.dumps(words) + "\n")
        sys.stderr.flush()


def sweep(mark):
    """Kills what carries the mark, for at most 10 s; returns whether something is left."""
    give_up = time.monotonic() + KILL_S
    clean = 0
    while clean < 2:  # Twice: a process in the middle of exec has no environment.
        found = list(marked(f"{MARK}={mark}".encode()))
        if found and time.monotonic() > give_up:
            return True
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        clean = 0 if found else clean + 1
        if found:
            time.sleep(0.05)
    return False


def marked(variable):
    """Ids of the processes with this environment variable."""
    for path in glob.glob("/proc/[0-9]*/environ"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if variable in file.read().split(b"\0"):
                yield int(path.split("/")[2])


if __name__ == "__main__":
    code = main(json.loads(sys.stdin.buffer.readline()))
    sys.stdout.flush()
    os._exit(code)  # The thread that listens would make Python's own end complain.
