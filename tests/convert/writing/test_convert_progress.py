from __future__ import annotations

import os
import subprocess
import sys

import pytest

from components.convert.writing import progress

PROGRAM = """
import sys
from components.convert.writing import progress
progress._Bar.first_s = float(sys.argv[1])
with progress.track("writing", 2000, "examples") as advance:
    for _ in range(4):
        advance(500)
print("rich" in sys.modules)
"""


def test_lines_tell_how_far_it_is(capsys, monkeypatch):
    monkeypatch.setattr(progress._Lines, "first_s", 0)
    monkeypatch.setattr(progress._Lines, "every_s", 0)
    with progress.track("writing", 2000, "examples") as advance:
        for more in (0, 500, 0, 1500):
            advance(more)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "writing: 25% of 2,000 examples in 0 s, about 0 s to go" and len(lines) == 3
    assert lines[2] == "writing: 100% of 2,000 examples in 0 s, about 0 s to go"


def test_what_is_short_says_nothing(capsys):
    with progress.track("writing", 2000, "examples") as advance:
        advance(2000)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("long", [True, False])
def test_a_terminal_shows_a_bar_if_it_is_long(long):
    ours, theirs = os.openpty()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    run = subprocess.Popen([sys.executable, "-c", PROGRAM, "0" if long else "60"], stdout=theirs, env=environ)
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 1 << 16):
            shown += data
    except OSError:
        pass  # what Linux says at the end
    os.close(ours)
    assert run.wait() == 0
    assert (b"writing" in shown and b"25%" in shown and b"2,000 examples" in shown) == long
    assert shown.rstrip().endswith(b"True" if long else b"False")
