from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from components.train.backends.plan import ATTEMPT, STATUS, Plan, trainer_flags
from components.train.backends.program import own_program, trainer_program
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.keys import Pool
from trainer.base.errors import UserError
from trainer.job_dir import journal

ONE = Cluster(strategy="one_device", chief=Pool())
FLAGS = ["--data-dir", "d", "--job-dir", "j", "--train-steps", "9"]


def own(command: str, *more: str, code: str | None = None, job_dir: str | None = "j"):
    return own_program(command, more, code=code, job_dir=job_dir, threads=3)


def test_trainer_is_run_by_this_interpreter_with_the_clusters_strategy():
    for flags in (FLAGS, [*FLAGS, "--strategy", "one_device"]):
        program = trainer_program(ONE, flags)
        assert program.command == (sys.executable, "-m", "trainer.task", *FLAGS, "--strategy", "one_device")
    assert (program.job_dir, program.data_dir, program.reports) == ("j", "d", True)


def test_another_strategy_than_the_clusters_is_refused():
    with pytest.raises(UserError, match=r"--strategy mirrored: the cluster file says one_device"):
        trainer_flags(ONE, ["--strategy=mirrored"])


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


@pytest.mark.parametrize(("job_dir", "place"), [("jobs/a", "jobs/a"), ("gs://bucket/a", "logs")])
def test_launcher_keeps_its_records_on_this_machine(job_dir: str, place: str):
    assert Plan(strategy="one_device", job_dir=job_dir, log_dir="logs", replicas=()).records_dir == place


def test_names_of_variables_are_those_that_the_trainer_reads():
    assert (STATUS, ATTEMPT) == (journal.STATUS, journal.ATTEMPT)
