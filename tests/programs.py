"""Programs as processes, and waiting for what they do."""

import contextlib
import functools
import os
import subprocess
import sys
import time

from tests.root import ROOT

LIMIT_S = 900.0  # of a whole run; a quiet machine takes one to three minutes


def start(*words, env=None, **options):
    """Starts a program in the project's directory; all that it prints is one text.

    Args:
      *words: Command line.
      env: Variables that it has beside those of this process.
      **options: Of `subprocess.Popen`.
    """
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    options = {"cwd": ROOT, **streams, **options, "env": {**os.environ, **(env or {})}}
    return subprocess.Popen([str(word) for word in words], **options)


def ended(process, code=0, typed=None):
    """Waits for a process to end with an exit code; returns what it has printed."""
    printed, _ = process.communicate(typed, timeout=LIMIT_S)
    assert process.returncode == code, printed
    return printed


def run(*words, code=0, typed=None, **options):
    """Runs a program that gets a text, if one is given, to its end; returns what it has printed."""
    stdin = {} if typed is None else {"stdin": subprocess.PIPE}
    return ended(start(*words, **stdin, **options), code, typed)


# The same with Python as the program.
start_python = functools.partial(start, sys.executable)
run_python = functools.partial(run, sys.executable)


def wait_until(condition, limit_s=120.0, poll_s=0.01, passing=()):
    """Polls until a condition holds, also through errors of these types; returns what it gives."""
    end = time.monotonic() + limit_s
    while True:
        with contextlib.suppress(*passing):
            if value := condition():
                return value
        assert time.monotonic() < end, "waited in vain"
        time.sleep(poll_s)


def install(path, text):
    """Writes a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
