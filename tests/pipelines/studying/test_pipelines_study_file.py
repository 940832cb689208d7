import pathlib
import re

import pytest

from pipelines import study
from pipelines.studying.study_file import load, settle
from trainer.base.errors import UserError

ROOT = pathlib.Path(__file__).parents[3]
GOOD = """asks: What?
convert: --dataset digits
train: --train-steps 3 --seed 9
cells:
  - {name: one}
  - {name: two, cluster: clusters/local-sync.yaml, train: --batch-size 64}
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes that study with a text in place of another; clusters are where the project begins."""
    monkeypatch.chdir(ROOT)

    def written(old: str = "", new: str = "") -> pathlib.Path:
        assert old in GOOD
        (tmp_path / "study.yaml").write_text(GOOD.replace(old, new, 1))
        return tmp_path / "study.yaml"

    return written


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("asks: What?", "", "asks: missing; add 'asks: What do more workers bring?'"),
        ("name: two", "name: one", "cells: two have the same name; each needs one of its own"),
        ("name: two", "name: a/b", "cells[1].name: 'a/b' is not a name"),
        ("train: --batch-size 64", "flags: --batch-size 64", "cells[1]: unknown key 'flags'"),
        (
            "local-sync",
            "local-snyc",
            "unknown cluster file 'clusters/local-snyc.yaml'; did you mean 'clusters/local-sync",
        ),
        ("--batch-size 64", "--batch-size 0", "cell two: argument --batch-size: '0' is not a whole number"),
        ("--batch-size 64", "--job-dir x", "cell two: --data-dir and --job-dir come from the study"),
        ("--dataset digits", "--dataset digits --shards 0", "convert: argument --shards: '0' is not"),
        ("--dataset digits", '--dataset "digits', "No closing quotation"),
        ("cells:", "repeats: 0\ncells:", "repeats: 0 is not a whole number from 1 to 100; write for example 1"),
    ],
)
def test_what_cannot_be_run_is_told_before_anything_is(write, refused, tmp_path, old, new, told):
    path = write(old, new)
    line = refused(study.main, path, "--output", tmp_path / "out")
    assert told in line and "study.yaml: " in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("path", sorted((ROOT / "studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_ready_study_can_be_run_and_says_what_it_answers(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    found = load(str(path))
    assert len(found.cells) > 1 and path.read_text().startswith("# ") and found.asks.endswith("?")
    assert found.repeats >= 3 and f"studies/{path.name}" in (ROOT / "docs" / "STUDIES.md").read_text()


def test_the_file_that_the_documentation_shows_is_one_and_its_flags_win_in_their_order(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    (example,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "STUDIES.md").read_text(), re.DOTALL)
    (tmp_path / "study.yaml").write_text(example)
    found = load(str(tmp_path / "study.yaml"))
    assert found.flags(found.cells[1], 2) == [
        "--seed=2",
        "--train-steps",
        "300",
        "--threads",
        "1",
        "--batch-size",
        "256",
    ]
    assert found.trained(found.cells[1]).batch_size == 256


def test_cells_may_be_added_to_what_is_there_but_none_may_become_another(write, tmp_path):
    first = load(str(write("  - {name: two, cluster: clusters/local-sync.yaml, train: --batch-size 64}\n", "")))
    settle(first, tmp_path, ())
    settle(load(str(write())), tmp_path, ())
    settle(first, tmp_path, ())
    for old, new, what in [
        ("64", "32", "cell two"),
        ("local-sync", "local-ps", "cell two"),
        ("steps 3", "steps 4", "cell one"),
    ]:
        with pytest.raises(UserError, match=f"has results of another {what} .*; use another --output"):
            settle(load(str(write(old, new))), tmp_path, ())
    with pytest.raises(UserError, match="results of another convert"):
        settle(first, tmp_path, ["elsewhere"])
