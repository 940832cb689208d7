"""docs/CLUSTERS.md says what is so."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.train.__main__ import main
from components.train.cluster.ai_platform import _CONFIG_KEYS, _KEYS
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.keys import Key, keys
from components.train.cluster.machines import substitute
from components.train.cluster.scale_tiers import LEGACY_MACHINES, LEGACY_TPU, TIERS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "CLUSTERS.md").read_text()
COMMANDS = re.findall(r"^\.venv/bin/python -m components\.train (.*)$", TEXT, re.MULTILINE)


def described(cls: type, prefix: str = "") -> Iterator[tuple[str, Key]]:
    for key in keys(cls):
        yield prefix + key.name, key
        if dataclasses.is_dataclass(key.type) and key.name not in ("worker", "ps", "evaluator"):
            yield from described(key.type, f"{prefix}{key.name}.")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_works_as_written(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out


def test_every_key_stands_in_the_table_with_its_default_and_meaning():
    rows = {row.split("|")[1].strip(): row for row in TEXT.splitlines() if row.startswith("| `")}
    for name, key in described(Cluster):
        row = rows[f"`{name}`"]
        assert row.endswith(f"| {key.doc} |")
        assert ("| required |" in row) == key.required
        if isinstance(key.default, int | str):
            assert f"| `{key.default}` |" in row
        if key.low is not None:
            assert f"| {key.low} to {key.high} |" in row
        assert all(choice in row for choice in key.choices)


def test_the_cluster_file_shown_is_one(tmp_path: Path):
    (example,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "cluster.yaml").write_text(example)
    assert Cluster.load(tmp_path / "cluster.yaml").replicas == 8


def test_every_key_of_ai_platform_is_in_the_migration_table():
    for key in [*_KEYS, *_CONFIG_KEYS]:
        assert re.search(rf"`(\.\.\.Config\.)?{key}[`.]", TEXT) or key.endswith("Config"), key


def test_every_legacy_name_is_there_with_what_replaces_it():
    for name in (*TIERS, *LEGACY_MACHINES, LEGACY_TPU):
        assert f"`{name}`" in TEXT
    for name, legacy in LEGACY_MACHINES.items():
        row = next(line for line in TEXT.splitlines() if line.startswith("| `") and f"`{name}`" in line)
        found = substitute(*legacy)
        assert row.endswith("| the same |") == (found == legacy)
        if found != legacy:
            assert found[0] in row.split("|")[3]
