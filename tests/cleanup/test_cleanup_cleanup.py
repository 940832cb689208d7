import json
import os

import pytest

from components.cleanup.__main__ import main
from components.cleanup.cleanup import Leftover, delete, unneeded
from pipelines.local.record import lock
from tests.cleanup.conftest import files
from tests.errors import user_error

KEPT = {
    "run.json",
    "summary.json",
    "report.html",
    "logs/pipeline.log",
    "job/DONE.json",
    "job/journal-chief-0-0.jsonl",
    "job/model/saved_model.pb",
    "cleanup.jsonl",
}
LEFTOVERS = {
    "tmp": (5, "temporary"),
    "job/DONE.json.1.tmp": (5, "temporary"),
    "job/model.partial": (10, "temporary"),
    "job/checkpoints": (10, "checkpoints of a finished job"),
    "artifacts/r1/convert": (5, "intermediate results"),
    "artifacts/r1/evaluate": (5, "intermediate results"),
}


def test_leftovers_listed_deleted_and_noted(make_run, capsys):
    run = make_run()
    before = files(run)
    assert main(["--run", str(run)]) == 0
    assert files(run) == before
    listed = capsys.readouterr().out
    assert all(f"  {run / path}\n" in listed for path in LEFTOVERS)
    assert "6 items; nothing was deleted" in listed
    assert main(["--run", str(run), "--delete", "--yes"]) == 0
    assert files(run) == KEPT
    journal = map(json.loads, (run / "cleanup.jsonl").read_text().splitlines())
    noted = {each["deleted"]: (each["bytes"], each["why"]) for each in journal}
    assert noted == {str(run / path): about for path, about in LEFTOVERS.items()}


def test_checkpoints_of_unfinished_job_stay(make_run):
    checkpoints = make_run(done=False) / "job" / "checkpoints"
    names = {leftover.name for leftover in unneeded(str(checkpoints.parents[1]))}
    assert str(checkpoints) not in names and str(checkpoints / "half.tmp") in names


def test_running_run_is_refused(make_run, refused):
    run = make_run()
    before, driver = files(run), lock(run)
    assert "is still running; stop it first" in refused(main, "--run", run, "--delete", "--yes")
    assert files(run) == before
    os.close(driver)
    assert main(["--run", str(run)]) == 0


@pytest.mark.parametrize("content", [None, "{", '{"id": "r1"}'])
def test_directory_of_no_run_refused(tmp_path, refused, content):
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "precious").touch()
    if content:
        (tmp_path / "run.json").write_text(content)
    before = files(tmp_path)
    assert "not the directory of a pipeline run" in refused(main, "--run", tmp_path, "--delete")
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    "link", ["tmp", "job", "job/checkpoints", "artifacts/r1", "tmp/link", "tmp/file"]
)
def test_files_behind_link_stay(make_run, tmp_path, link):
    """A link in place of a directory is neither followed nor deleted; one in it goes alone."""
    run, outside = make_run(), tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x" * 1000)
    is_directory = (run / link).exists()
    if is_directory:
        (run / link).rename(outside / "directory")
    (run / link).symlink_to(outside / "precious" if link == "tmp/file" else outside)
    before, leftovers = files(outside), unneeded(str(run))
    assert leftovers and sum(leftover.num_bytes for leftover in leftovers) < 500
    delete(str(run), leftovers)
    assert files(outside) == before and (run / link).is_symlink() == is_directory


def test_nothing_outside_run_is_deleted(make_run, tmp_path):
    run, other = make_run(), make_run("r2")
    (run / "link").symlink_to(other)
    before = files(tmp_path)
    for path in (other / "tmp", run / "tmp" / "..", run, run / "link" / "tmp"):
        with user_error("nothing outside a run is deleted"):
            delete(str(run), [Leftover(name=str(path), why="")])
    assert files(tmp_path) == before | {"runs/r1/cleanup.jsonl"}
