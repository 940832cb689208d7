"""Every command says which code it is, as every model keeps it."""

import re
import runpy
import subprocess

import pytest

from common.version import code_version
from tests.root import ROOT

COMMANDS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in ("common", "trainer", "components", "pipelines")
    for path in (ROOT / package).rglob("*.py")
    if re.search(r"^ +run_cli\(", path.read_text(), re.MULTILINE)
)
assert {"trainer.task", "pipelines.run"} <= {*COMMANDS}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_says_its_version(command, monkeypatch, capsys):
    monkeypatch.setenv("CODE_VERSION", "abc123")
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # Or trainer.task would start this process anew.
    monkeypatch.setattr("sys.argv", [command, "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(command, run_name="__main__")
    assert (ended.value.code or 0, capsys.readouterr().out) == (0, "abc123\n")


def test_version_is_commit_or_package(monkeypatch):
    monkeypatch.delenv("CODE_VERSION", raising=False)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    if head.returncode:
        pytest.skip("not a git checkout")
    commit = code_version().removesuffix("+")
    assert len(commit) == 12 and head.stdout.startswith(commit)
    monkeypatch.setenv("PATH", "")  # No git.
    assert re.fullmatch(r"\d+\.\d+\.\d+", code_version())
