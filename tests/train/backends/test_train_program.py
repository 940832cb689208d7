import os
from pathlib import Path

import pytest

from components.train.backends.program import own_program


def own(command: str, *more: str, code: str | None = None, job_dir: str | None = "j"):
    return own_program(command, more, code=code, job_dir=job_dir)


def test_own_command_is_split_as_a_shell_does():
    program = own("python -m my.task --name 'a b'", "--more", "1")
    assert program.command == ("python", "-m", "my.task", "--name", "a b") and program.args == ("--more", "1")
    assert own("python3 x.py").command == ("python", "x.py")
    assert own("./run.sh").command == ("./run.sh",)


def test_own_code_is_first_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", "/there")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    assert own("python x.py", code="src").env["PYTHONPATH"] == f"{tmp_path}/src{os.pathsep}/there"
    assert "PYTHONPATH" not in own("python x.py").env
