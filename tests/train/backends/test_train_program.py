import os
from pathlib import Path

import pytest

from components.train.backends.program import own_program


def test_own_command_is_split_like_shell():
    program = own_program("python3 -m my.task --name 'a b'", ("--more", "1"), job_dir="j")
    assert program.command == ("python", "-m", "my.task", "--name", "a b")
    assert program.args == ("--more", "1")
    assert "PYTHONPATH" not in program.env


def test_own_code_is_first_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", "/there")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    program = own_program("python x.py", code="src", job_dir="j")
    assert program.env["PYTHONPATH"] == f"{tmp_path}/src{os.pathsep}/there"
