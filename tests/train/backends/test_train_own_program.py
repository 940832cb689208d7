"""Programs of the user's own, which every replica runs."""

import os
import subprocess
import sys

import pytest

from components.train.backends.program import own_program
from tests.root import ROOT


@pytest.mark.parametrize("command", ["python -m trainer.task", "python {code}/trainer/task.py"])
def test_packages_called_like_ours(tmp_path, command):
    """The user's package wins over ours in the working directory."""
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "task.py").write_text("import common, helper; print(helper.__file__)")
    (tmp_path / "trainer" / "helper.py").write_text("")
    (tmp_path / "helper.py").write_text("")
    program = own_program(command.format(code=tmp_path), code=str(tmp_path), job_dir="-")
    line = [sys.executable, *program.command[1:]]
    printed = subprocess.check_output(line, cwd=ROOT, env={**os.environ, **program.env}, text=True)
    assert printed.strip().startswith(str(tmp_path))
