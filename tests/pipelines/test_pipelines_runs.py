"""Runs as their files tell of them: listed, compared and deleted, whatever else is beside them."""

import os

import pytest

from common.manifest import FILE as MANIFEST
from pipelines import runs
from pipelines.local.record import lock
from pipelines.run import DATASETS


@pytest.fixture
def output_of(tmp_path, capsys):
    """Runs a verb to its end, and returns what it printed."""

    def run_verb(verb, *more):
        capsys.readouterr()
        assert runs.main([verb, *map(str, more), "--runs-dir", str(tmp_path / "runs")]) == 0
        return capsys.readouterr().out

    return run_verb


def test_list_shows_outcome_of_runs(make, output_of, tmp_path):
    done = make("1-done", accuracy=0.75)
    (done / "evaluation.json").write_text('{"metric": "accuracy", "dataset": "trips"}')
    make("2-failed", "failed")
    make("3-killed", None)
    descriptor = lock(make("4-running", None))
    for name, content in (("5-broken", "{"), ("6-foreign", '{"id": 7}')):
        (tmp_path / "runs" / name).mkdir()
        (tmp_path / "runs" / name / "run.json").write_text(content)
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "runs" / "readme.txt").touch()
    (tmp_path / "runs" / "latest").symlink_to("1-done")
    heads, *lines = (line.split() for line in output_of("list").splitlines())
    os.close(descriptor)
    assert heads[:5] == ["run", "status", "verdict", "metric", "version"]
    figures = "promote accuracy 0.7500 1 trips clusters/local.yaml 2.5"
    assert lines[0] == f"1-done succeeded {figures}".split()
    assert [line[:2] for line in lines[1:]] == [
        *(["2-failed", "failed"], ["3-killed", "killed"], ["4-running", "running"]),
        *(["5-broken", "broken"], ["6-foreign", "broken"]),
    ]


def test_unusable_run_is_refused(make, output_of, refused, tmp_path):
    where = ("--runs-dir", tmp_path / "runs")
    done, killed = make("20260101-000000"), make("20260102-000000", None)
    assert "did you mean '20260101-000000'?" in refused(runs.main, "show", "20260101-00000", *where)
    assert "no such directory" in refused(runs.main, "list", "--runs-dir", tmp_path / "nowhere")
    descriptor = lock(killed)
    for verb in (["resume"], ["delete", "--yes"]):
        assert "is still running" in refused(runs.main, *verb, killed, *where)
    os.close(descriptor)
    moved = killed.rename(killed.with_name("moved"))
    assert f"move it back to {killed}" in refused(runs.main, "resume", moved, *where)
    failed = make("3", "failed")
    assert "its dataset is gone, and the source" in refused(runs.main, "resume", failed, *where)
    before = sorted(tmp_path.rglob("*"))
    assert "add --yes" in refused(runs.main, "delete", done, *where)
    assert "is finished; there is nothing to go on with" in output_of("resume", done)
    assert sorted(tmp_path.rglob("*")) == before


def test_resumed_run_counts_as_running(make, refused, monkeypatch):
    failed = make("1", "failed")
    dataset = failed.parent / DATASETS / "d1"
    dataset.mkdir(parents=True)
    (dataset / MANIFEST).touch()

    def execute(record):
        assert "is still running" in refused(runs.main, "delete", record.dir, "--yes")
        return 7

    monkeypatch.setattr(runs, "execute", execute)
    assert runs.main(["resume", str(failed)]) == 7


def test_compare_shows_what_differs(make, output_of):
    same = {"versions": {"tf": "2"}}
    make("1", accuracy=0.75, settings={"learning_rate": 0.001, "schedule": "constant"}, **same)
    # A metric may be undefined.
    make("2", accuracy=None, settings={"learning_rate": 0.01, "schedule": "constant"}, **same)
    assert [line.split() for line in output_of("compare", "1", "2").splitlines()] == [
        ["run", "1", "2"],
        ["metric", "accuracy", "0.7500", "accuracy", "-"],
        ["test", "accuracy", "0.75", "-"],
        ["learning_rate", "0.001", "0.01"],
    ]
    assert "['--seed=1']" in output_of("show", "2")


def test_delete_takes_named_runs_only(make, output_of, tmp_path):
    gone, stays = make("1"), make("2")
    dataset = tmp_path / "runs" / DATASETS / "d1"
    dataset.mkdir(parents=True)
    output_of("delete", "1", gone, "--yes")
    assert not gone.exists() and stays.exists() and dataset.exists()
