from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from components.train.backends.program import own_program, trainer_program
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.keys import Pool
from trainer.base.errors import UserError

ONE = Cluster(strategy="one_device", chief=Pool())
FLAGS = ["--data-dir", "d", "--job-dir", "j", "--train-steps", "9"]


def own(command: str, *more: str, code: str | None = None, job_dir: str | None = "j"):
    return own_program(command, more, code=code, job_dir=job_dir, threads=3)


def test_trainer_is_run_by_this_interpreter_with_the_clusters_strategy():
    program = trainer_program(ONE, FLAGS)
    assert program.command == (sys.executable, "-m", "trainer.task", *FLAGS, "--strategy", "one_device")
    assert (program.job_dir, program.reports) == ("j", True)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([*FLAGS, "--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        ([*FLAGS, "--batch-size", "0"], "argument --batch-size: .*0.* at least 1"),
        (FLAGS[2:], "required: --data-dir"),
        (FLAGS[:2] + FLAGS[4:], "required: --job-dir"),
        ([*FLAGS, "--strategy", "mirrored"], "--strategy mirrored: the cluster file says one_device"),
    ],
)
def test_flags_are_checked_before_anything_starts(flags: list[str], says: str):
    with pytest.raises(UserError, match=says):
        trainer_program(ONE, flags)


def test_own_command_is_split_as_a_shell_does_and_python_is_this_one():
    program = own("python -m my.task --name 'a b'", "--more", "1")
    assert program.command == (sys.executable, "-m", "my.task", "--name", "a b", "--more", "1")
    assert not program.reports
    assert own("./run.sh").command == ("./run.sh",)


def test_own_code_is_first_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", "/there")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    assert own("python x.py", code="src").env["PYTHONPATH"] == f"{tmp_path}/src{os.pathsep}/there"
    assert own("python x.py", code="src").env["TF_NUM_INTRAOP_THREADS"] == "3"
    assert "PYTHONPATH" not in own("python x.py").env


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"command": "python 'x"}, "No closing quotation; close the quotation"),
        ({"command": " "}, "--command is empty"),
        ({"command": "python x", "job_dir": None}, "add --job-dir DIR before the '--'"),
        ({"command": "python x", "code": "no/such"}, "--code no/such: no such directory"),
    ],
)
def test_own_program_that_cannot_run_is_a_user_error(arguments: dict[str, str], says: str):
    with pytest.raises(UserError, match=says):
        own(**arguments)
