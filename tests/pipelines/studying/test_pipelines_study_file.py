import pathlib
import re

import pytest

from pipelines import study
from pipelines.studying.study_file import load, settle
from trainer.base.errors import UserError

ROOT = pathlib.Path(__file__).parents[3]
DOCS = (ROOT / "docs" / "STUDIES.md").read_text()
(GOOD,) = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes the study that the documentation shows with a text in place of another."""
    monkeypatch.chdir(ROOT)

    def written(old: str = "", new: str = "") -> str:
        assert old in GOOD
        (tmp_path / "study.yaml").write_text(GOOD.replace(old, new, 1))
        return str(tmp_path / "study.yaml")

    return written


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("asks: What do more workers bring?", "", "asks: missing; add 'asks: What do more workers bring?'"),
        ("name: two", "name: one", "cells: two have the same name; each needs one of its own"),
        ("name: two", "name: a/b", "cells[1].name: 'a/b' is not a name"),
        ("train: --batch-size 256", "flags: --batch-size 256", "cells[1]: unknown key 'flags'"),
        ("local-sync", "local-snyc", "'clusters/local-snyc.yaml'; did you mean 'clusters/local-sync"),
        ("--batch-size 256", "--batch-size 0", "cell two: argument --batch-size: '0' is not a whole number"),
        ("--batch-size 256", "--job-dir x", "cell two: --data-dir and --job-dir come from the study"),
        ("--dataset digits", "--shards 0", "convert: argument --shards: '0' is not"),
        ("--dataset digits", '--dataset "digits', "No closing quotation"),
        ("repeats: 3", "repeats: 0", "repeats: 0 is not a whole number from 1 to 100; write for example 1"),
    ],
)
def test_what_cannot_be_run_is_told_before_anything_is(write, refused, tmp_path, old, new, told):
    line = refused(study.main, write(old, new), "--output", tmp_path / "out")
    assert told in line and "study.yaml: " in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("path", sorted((ROOT / "studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_ready_study_can_be_run_and_says_what_it_answers(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    found = load(str(path))
    assert len(found.cells) > 1 and path.read_text().startswith("# ") and found.asks.endswith("?")
    assert found.repeats >= 3 and f"studies/{path.name}" in DOCS


def test_flags_of_a_cell_come_last_and_the_seed_is_the_repeat(write):
    found = load(write())
    assert " ".join(found.flags(found.cells[1], 2)) == "--seed=2 --train-steps 300 --threads 1 --batch-size 256"


def test_cells_may_be_added_to_what_is_there_but_none_may_become_another(write, tmp_path):
    first = load(write(GOOD[GOOD.index("  - {name: two") :], ""))
    for each in (first, load(write()), first):
        settle(each, tmp_path, ())
    for old, new, what in (("256", "32", "two"), ("local-sync", "local-ps", "two"), ("300", "400", "one")):
        with pytest.raises(UserError, match=f"has results of another cell {what}: .*; use another --output"):
            settle(load(write(old, new)), tmp_path, ())
    with pytest.raises(UserError, match="results of another convert"):
        settle(first, tmp_path, ["elsewhere"])
