"""The changes of docs/CHANGING.md, made in a copy of the tree: each touches two files at most."""

import functools
import json
import re
import shutil

import pytest

from tests.programs import run_python
from tests.root import ROOT

# The tenth, a source, is tested with the converter.
DOCUMENT = (ROOT / "docs" / "CHANGING.md").read_text().partition("## Adding a source")[0]
CHANGES = [section for section in DOCUMENT.split("\n## ")[1:] if "```" in section]


def files_of(section):
    """Path, kind and text of each block: the path is the last that stands before it."""
    blocks = re.split(r"```(python|diff|csv)\n(.*?)```\n", section, flags=re.DOTALL)
    paths = [re.findall(r"`([a-z_/]+/[a-z_]+\.(?:py|csv))`", prose)[-1] for prose in blocks[:-1:3]]
    return list(zip(paths, blocks[1::3], blocks[2::3], strict=True))


def apply(file, kind, text):
    if kind == "csv":
        text = file.read_text() + text
    elif kind == "diff":
        lines = text.splitlines(keepends=True)
        before, after = (
            "".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +")
        )
        content = file.read_text()
        assert content.count(before) == 1, f"not once in {file}:\n{before}"
        text = content.replace(before, after)
    file.write_text(text)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs Python in a copy with all changes of the document, and returns what it prints."""
    root = tmp_path_factory.mktemp("changed")
    for package in ("common", "components", "pipelines", "trainer", "clusters"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, root / package, ignore=ignored)
    for section in CHANGES:
        for path, kind, text in files_of(section):
            apply(root / path, kind, text)

    run = functools.partial(run_python, cwd=root, env={"PYTHONPATH": str(root)})
    run.root = root
    return run


def test_change_touches_two_files():
    touched = [len({path for path, _, _ in files_of(section)}) for section in CHANGES]
    assert len(touched) == 9 and max(touched) == 2, touched
    # And the files that it names are there, but for those that it adds.
    pattern = r"`((?:common|components|pipelines|trainer|docs|clusters)/[\w./]+)`"
    missing = {path for path in re.findall(pattern, DOCUMENT) if not (ROOT / path).exists()}
    assert missing == {"trainer/models/softmax.py", "components/train/backends/idle.py"}


@pytest.mark.cluster
def test_new_back_end_runs_replicas(run):
    command = """python -c 'import os; print("priority", os.nice(0))'"""
    flags = ["--cluster", "clusters/local-sync.yaml", "--backend", "idle", "--job-dir", "job"]
    printed = run("-m", "components.train", *flags, "--command", command)
    assert "worker/0 | priority 19" in printed


@pytest.mark.cluster
def test_new_model_flags_and_metric_work(run):
    run("-m", "components.convert", "--output=digits", "--shards=1", "--origin=found")
    assert json.loads((run.root / "digits" / "manifest.json").read_text())["origin"] == "found"
    train = ["--data-dir=digits", "--job-dir=job", "--model=softmax", "--train-steps=30"]
    assert "softmax on digits" in run("-m", "trainer.task", *train, "--adam-epsilon=0.1")
    facts = json.loads((run.root / "job" / "job.json").read_text())["identity"]
    assert (facts["model"], facts["adam_epsilon"]) == ("softmax", 0.1)
    judge = ["--model-dir=job/model", "--data-dir=digits", "--output=evaluation"]
    judge += ["--threshold", "balanced_accuracy=0.01", "--remark", "look again"]
    printed = run("-m", "components.evaluate", *judge)
    for text in ("balanced_accuracy", "reaches the threshold 0.0100", "look again"):
        assert text in printed
