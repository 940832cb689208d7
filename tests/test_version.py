"""Every command says which code it is, as every model keeps it."""

import re
import subprocess

import pytest

from common.version import code_version
from tests.programs import run_python
from tests.root import ROOT


@pytest.mark.long
def test_command_says_its_version():
    env = {"CODE_VERSION": "abc123"}
    assert run_python("-m", "trainer.task", "--version", env=env) == "abc123\n"


def test_version_is_commit_or_package(monkeypatch):
    monkeypatch.delenv("CODE_VERSION", raising=False)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    if head.returncode:
        pytest.skip("not a git checkout")
    commit = code_version().removesuffix("+")
    assert len(commit) == 12 and head.stdout.startswith(commit)
    monkeypatch.setenv("PATH", "")  # No git.
    assert re.fullmatch(r"\d+\.\d+\.\d+", code_version())
