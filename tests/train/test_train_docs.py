"""Tests of statements in docs/CLUSTERS.md; tests/test_lessons.py runs docs/RUNNING.md."""

import re
import shlex

import pytest

from components.train.__main__ import main
from components.train.cluster.lookup import load_cluster
from tests.root import ROOT, blocks

TEXT = (ROOT / "docs" / "CLUSTERS.md").read_text()
COMMANDS = re.findall(r"^\.venv/bin/python -m components\.train (.*)$", TEXT, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_clusters_page_works(command, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out


def test_cluster_file_on_page_loads(tmp_path):
    (example,) = blocks("CLUSTERS.md", "yaml")
    (tmp_path / "cluster.yaml").write_text(example)
    assert load_cluster(tmp_path / "cluster.yaml").replicas == 8
