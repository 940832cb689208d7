"""The changes of docs/CHANGING.md, made for real in a copy of the tree: each touches two files of code at most."""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
# The tenth, a source, is tested with the converter.
DOCUMENT = (ROOT / "docs" / "CHANGING.md").read_text().partition("## Adding a source")[0]
CHANGES = {
    section.partition("\n")[0]: section
    for section in DOCUMENT.split("\n## ")[1:]
    if "```" in section
}


def files_of(section: str) -> list[tuple[str, str, str]]:
    """Path, kind and text of each block: the path is the last that stands before it."""
    blocks = re.split(r"```(python|diff|csv)\n(.*?)```\n", section, flags=re.DOTALL)
    paths = [re.findall(r"`([a-z_/]+/[a-z_]+\.(?:py|csv))`", prose)[-1] for prose in blocks[:-1:3]]
    return list(zip(paths, blocks[1::3], blocks[2::3], strict=True))


def apply(root: pathlib.Path, path: str, kind: str, text: str) -> None:
    file = root / path
    if kind == "csv":
        file.write_text(file.read_text() + text)
    elif kind == "python":
        file.write_text(text)
    else:
        lines = text.splitlines(keepends=True)
        before, after = (
            "".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +")
        )
        assert file.read_text().count(before) == 1, (
            f"{path} has no such lines, or has them twice:\n{before}"
        )
        file.write_text(file.read_text().replace(before, after))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy with all changes of the document."""
    root = tmp_path_factory.mktemp("changed")
    for package in ("common", "components", "pipelines", "trainer", "clusters"):
        shutil.copytree(
            ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for section in CHANGES.values():
        for block in files_of(section):
            apply(root, *block)
    return root


def run(tree: pathlib.Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, *words], cwd=tree, env=environment, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_no_change_touches_more_than_two_files():
    touched = {
        change: len({path for path, _, _ in files_of(section)})
        for change, section in CHANGES.items()
    }
    assert len(touched) == 9 and max(touched.values()) == 2, touched


def test_every_file_that_the_document_names_is_there():
    named = collections.Counter(
        re.findall(r"`((?:common|components|pipelines|trainer|docs|clusters)/[\w./]+)`", DOCUMENT)
    )
    assert [path for path in named if not (ROOT / path).exists()] == [
        "trainer/models/softmax.py",
        "components/train/backends/idle.py",
    ]


@pytest.mark.cluster
def test_flags_go_through_the_pipeline(tree):
    keys = run(tree, "pipelines/run.py", "--help-config")
    assert "origin: str" in keys and "remark: str" in keys
    run(tree, "-m", "components.convert", "--output", "data", "--shards", "1", "--origin", "found")
    assert json.loads((tree / "data" / "manifest.json").read_text())["origin"] == "found"
    printed = run(
        tree,
        "pipelines/submit.py",
        "--dry-run",
        "--set",
        "origin=found in a drawer",
        "--set",
        "remark=look again",
    )
    assert "--origin=found in a drawer" in printed and "--remark=look again" in printed


@pytest.mark.cluster
def test_a_key_of_a_cluster_and_a_machine_type_reach_the_plans(tree):
    (tree / "c.yaml").write_text(
        "strategy: one_device\nchief: {machine: z9-standard-8, accelerator: {type: "
        "NVIDIA_TESLA_T4}}\n"
        "scheduling: {malloc_arenas: 3}\n"
    )
    flags = ["-m", "components.train", "--cluster", "c.yaml", "--dry-run"]
    assert '"MALLOC_ARENA_MAX": "3"' in run(tree, *flags, "--job-dir", "job", "--command", "true")
    job = ["--data-dir=d", "--job-dir=gs://b/j", "--train-steps=1"]
    printed = run(tree, *flags, "--backend", "vertex", "--image", "i", "--", *job)
    assert (
        '"machineType": "z9-standard-8"' in printed
        and "ignores scheduling.malloc_arenas" in printed
    )


@pytest.mark.cluster
def test_vertex_setting_reaches_pipeline_and_job(tree):
    assert "enable_web_access" in run(
        tree, "pipelines/submit.py", "--dry-run", "--set", "web_access=true"
    )
    flags = [
        "--backend",
        "vertex",
        "--cluster",
        "clusters/vertex-cpu.yaml",
        "--image",
        "i",
        "--dry-run",
        "--web-access",
    ]
    job = ["--job-dir=gs://b/j", "--data-dir=d", "--train-steps=1"]
    assert '"enableWebAccess": true' in run(tree, "-m", "components.train", *flags, "--", *job)


@pytest.mark.cluster
def test_back_end_runs_its_replicas(tree):
    command = """python -c 'import os; print("priority", os.nice(0))'"""
    flags = [
        "--cluster",
        "clusters/local-sync.yaml",
        "--backend",
        "idle",
        "--job-dir",
        "job",
        "--command",
        command,
    ]
    assert "worker/0 | priority 19" in run(tree, "-m", "components.train", *flags)


@pytest.mark.cluster
def test_model_flag_and_metric_are_used(tree):
    run(tree, "-m", "components.convert", "--output", "digits", "--shards", "1")
    flags = [
        "-m",
        "trainer.task",
        "--data-dir=digits",
        "--model=softmax",
        "--train-steps=30",
        "--adam-epsilon=0.1",
    ]
    assert "softmax on digits" in run(tree, *flags, "--job-dir=job")
    facts = json.loads((tree / "job" / "job.json").read_text())["identity"]
    assert (facts["model"], facts["adam_epsilon"]) == ("softmax", 0.1)
    judge = [
        "-m",
        "components.evaluate",
        "--model-dir=job/model",
        "--data-dir=digits",
        "--output=evaluation",
    ]
    printed = run(tree, *judge, "--threshold", "balanced_accuracy=0.01", "--remark", "look again")
    assert (
        "balanced_accuracy" in printed
        and "reaches the threshold 0.0100" in printed
        and "look again" in printed
    )
