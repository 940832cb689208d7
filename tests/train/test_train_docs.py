"""Tests of statements in docs/CLUSTERS.md; tests/test_lessons.py runs docs/RUNNING.md."""

import re
import shlex

import pytest
from train_golden import described_keys

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
    (example,) = blocks("CLUSTERS.md", "yaml")
    (tmp_path / "cluster.yaml").write_text(example)
    assert load_cluster(tmp_path / "cluster.yaml").replicas == 8
