"""Tests of statements in docs/CLUSTERS.md and docs/RUNNING.md."""

import re
import shlex
import subprocess
import sys

import pytest
from train_golden import described_keys

from components.train.__main__ import main
from components.train.cluster.lookup import load_cluster
from tests.root import ROOT

TEXT = (ROOT / "docs" / "CLUSTERS.md").read_text()
COMMANDS = re.findall(r"^\.venv/bin/python -m components\.train (.*)$", TEXT, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_clusters_page_works(command, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out


def test_key_table_matches_schema():
    rows = {row.split("|")[1].strip(): row for row in TEXT.splitlines() if row.startswith("| `")}
    for name, key, required in described_keys():
        row = rows[f"`{name}`"]
        assert row.endswith(f"| {key['description']} |")
        assert ("| required |" in row) == required
        if "default" in key:
            assert f"| `{key['default']}` |" in row
        if "minimum" in key:
            assert f"| {key['minimum']} to {key['maximum']} |" in row
        assert "| name |" in row or all(choice in row for choice in key.get("enum", ()))


def test_cluster_file_on_page_loads(tmp_path):
    (example,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "cluster.yaml").write_text(example)
    assert load_cluster(tmp_path / "cluster.yaml").replicas == 8


@pytest.mark.slow
def test_command_of_running_page_works(tmp_path):
    (tmp_path / "clusters").symlink_to(ROOT / "clusters")
    package = tmp_path / "src" / "mytrainer"
    package.mkdir(parents=True)
    (package / "task.py").write_text("import os; print(os.environ['TF_CONFIG'])")
    text = (ROOT / "docs" / "RUNNING.md").read_text()
    # Those of runs of the pipeline, which have names to be filled in, are in tests/pipelines.
    for command in re.findall(r"^\.venv/bin/python (-m .*)$", text, re.MULTILINE):
        line = [sys.executable, *shlex.split(command)]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        # Of a job that has ended there is nothing to stop, which is a mistake of the user's.
        expected = 2 if "--stop" in command else 0
        assert done.returncode == expected, f"{command}\n{done.stdout}{done.stderr}"
