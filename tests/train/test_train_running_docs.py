"""docs/RUNNING.md says what is so."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from components.train.supervision.timeouts import Patience

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "RUNNING.md").read_text()
COMMANDS = re.findall(r"^\.venv/bin/python (.*)$", TEXT, re.MULTILINE)


@pytest.mark.slow
def test_every_command_works_as_written(tmp_path: Path):
    (tmp_path / "clusters").symlink_to(ROOT / "clusters")
    package = tmp_path / "src" / "mytrainer"
    package.mkdir(parents=True)
    (package / "task.py").write_text("import os; print(os.environ['TF_CONFIG'])")
    for command in COMMANDS:
        # Of a job that has ended there is nothing to stop, which is a mistake of the user's.
        expected = 2 if "--stop" in command else 0
        line = [sys.executable, *shlex.split(command)]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == expected, f"{command}\n{done.stdout}{done.stderr}"
        assert done.stdout or expected


def test_figures_are_those_of_the_code():
    limits = Patience()
    for said in (
        f"stopped for {limits.stopped_s:.0f} s is frozen",
        f"not up after {limits.start_s:.0f} s",
        f"{limits.silence_s['training']:.0f} s in training, {limits.silence_s['saving']:.0f} s in\n  saving",
        f"frozen after {limits.silence_s['serving']:.0f} s without",
    ):
        assert said in TEXT, said
