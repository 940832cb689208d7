"""Runs as their files tell of them: listed, compared and deleted, whatever else lies beside them."""

import json
import os
import pathlib
import re
from collections.abc import Callable

import pytest

from pipelines import runs
from pipelines.local.cache import STORE
from pipelines.local.record import lock


@pytest.fixture
def output_of(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a verb to its end, and returns what it printed."""

    def run_verb(verb: str, *more: object) -> str:
        capsys.readouterr()
        assert runs.main([verb, *map(str, more), "--runs-dir", str(tmp_path / "runs")]) == 0
        return capsys.readouterr().out

    return run_verb


def test_list_shows_outcome_of_each_run(make, output_of, tmp_path):
    make("1-done", accuracy=0.75)
    make("2-failed", "failed")
    make("3-killed", None)
    descriptor = lock(make("4-running", None))
    for name, content in (
        ("5-broken", "{"),
        ("6-foreign", '{"id": 7}'),
        ("7-list", "[]"),
        ("8-binary", "\0\udcff"),
    ):
        (tmp_path / "runs" / name).mkdir()
        (tmp_path / "runs" / name / "run.json").write_text(content, errors="surrogateescape")
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "runs" / "readme.txt").touch()
    (tmp_path / "runs" / "latest").symlink_to("1-done")
    try:
        heads, *lines = (line.split() for line in output_of("list").splitlines())
    finally:
        os.close(descriptor)
    assert heads == [
        "run",
        "status",
        "verdict",
        "metric",
        "version",
        "dataset",
        "cluster",
        "seconds",
    ]
    of_digits = ["digits", "clusters/local.yaml"]
    figures = ["promote", "accuracy", "0.7500", "1", *of_digits, "2.5"]
    assert lines[0] == ["1-done", "succeeded", *figures]
    assert [line[:2] for line in lines[1:]] == [
        *(["2-failed", "failed"], ["3-killed", "killed"], ["4-running", "running"]),
        *([name, "broken"] for name in ("5-broken", "6-foreign", "7-list", "8-binary")),
    ]
    assert lines[2] == ["3-killed", "killed", *of_digits]


def test_unusable_run_is_refused(make, output_of, refused, tmp_path):
    where = ("--runs-dir", tmp_path / "runs")
    done, killed = make("20260101-000000"), make("20260102-000000", None)
    assert "did you mean '20260101-000000'?" in refused(runs.main, "show", "20260101-00000", *where)
    assert "no such directory" in refused(runs.main, "list", "--runs-dir", tmp_path / "nowhere")
    descriptor = lock(killed)
    assert "is still running" in refused(runs.main, "resume", killed, *where)
    assert "is still running" in refused(runs.main, "delete", killed, "--yes", *where)
    os.close(descriptor)
    moved = killed.rename(killed.with_name("moved"))
    assert f"move it back to {killed}" in refused(runs.main, "resume", moved, *where)
    assert "its dataset is gone, and the source" in refused(
        runs.main, "resume", make("3", "failed"), *where
    )
    before = sorted(tmp_path.rglob("*"))
    assert "add --yes" in refused(runs.main, "delete", done, *where)
    assert (
        output_of("resume", done)
        == f"run {done.name} is finished; there is nothing to go on with\n"
    )
    assert sorted(tmp_path.rglob("*")) == before


def test_compare_shows_metrics_and_differing_settings(make, output_of):
    same = {"versions": {"tf": "2"}}
    for name, accuracy, rate in (
        ("1", 0.75, 0.001),
        ("2", None, 0.01),
    ):  # a metric may be undefined
        make(
            name,
            accuracy=accuracy,
            settings={"learning_rate": rate, "schedule": "constant"},
            **same,
        )
    lines = [line.split() for line in output_of("compare", "1", "2").splitlines()]
    metrics = [["metric", "accuracy", "0.7500", "accuracy", "-"], ["test", "accuracy", "0.75", "-"]]
    assert lines == [["run", "1", "2"], *metrics, ["learning_rate", "0.001", "0.01"]]
    for name in "12":
        shown = output_of("show", name)
        assert "None" not in shown and "null" not in shown
        assert f"accuracy {'0.7500' if name == '1' else '-'}" in " ".join(output_of("list").split())
        assert re.search(r"^trainer_args +\['--seed=1'\]$", shown, re.MULTILINE)
        assert re.search(r"^status +succeeded$", shown, re.MULTILINE)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("job/job.json", {"settings": "x"}),
        ("run.json", {"arguments": {}}),
    ],
)
def test_damaged_record_is_one_line(make, refused, tmp_path, file, content):
    run = make("1")
    make("2")
    known = json.loads((run / file).read_text()) if (run / file).exists() else {}
    (run / file).write_text(json.dumps(known | content))
    for verb, *names in (("show", "1"), ("compare", "1", "2")):
        message = refused(runs.main, verb, *names, "--runs-dir", tmp_path / "runs")
        assert f"run.json, summary.json or job/job.json of {run} cannot be used" in message


@pytest.mark.parametrize("content", [{"metrics": 7}, {"model": [1]}])
def test_damaged_summary_makes_run_broken(make, output_of, refused, tmp_path, content):
    run = make("1")
    (run / "summary.json").write_text(json.dumps({"status": "succeeded", **content}))
    assert [line.split() for line in output_of("list").splitlines()][1:] == [["1", "broken"]]
    assert "run.json or summary.json is none of ours, or damaged" in refused(runs.main, "show", run)


def test_delete_takes_named_runs_only(make, output_of, tmp_path):
    gone, stays = make("1"), make("2")
    dataset = tmp_path / "runs" / STORE / "d1"
    dataset.mkdir(parents=True)
    output_of("delete", "1", gone, "--yes")
    assert not gone.exists() and stays.exists() and dataset.exists()
