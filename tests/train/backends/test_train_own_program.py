"""Programs of the user's own, which every replica runs."""

import pytest

from components.train.backends.program import own_program
from tests.programs import run_python


@pytest.mark.parametrize("command", ["python -m trainer.task", "python {code}/trainer/task.py"])
def test_packages_called_like_ours(tmp_path, command):
    """The user's package wins over ours in the working directory."""
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "task.py").write_text("import common, helper; print(helper.__file__)")
    (tmp_path / "trainer" / "helper.py").write_text("")
    (tmp_path / "helper.py").write_text("")
    program = own_program(command.format(code=tmp_path), code=str(tmp_path), job_dir="-")
    assert run_python(*program.command[1:], env=program.env).startswith(str(tmp_path))
