import json
import os
import pathlib
import re

import pytest

from common.errors import UserError
from components.cleanup.__main__ import main
from components.cleanup.cleanup import Leftover, delete, unneeded
from pipelines.local.record import lock

KEPT = {
    "run.json",
    "summary.json",
    "report.html",
    "logs/pipeline.log",
    "job/DONE.json",
    "job/journal-chief-0-0.jsonl",
    "job/model/saved_model.pb",
}


GOES = {
    "tmp": (5, "temporary"),
    "job/DONE.json.1.tmp": (5, "temporary"),
    "job/model.partial": (10, "temporary"),
    "job/checkpoints": (10, "checkpoints of a finished job"),
    "artifacts/r1/convert": (5, "intermediate results"),
    "artifacts/r1/evaluate": (5, "intermediate results"),
}


def test_it_lists_and_deletes_when_asked_to_and_keeps_a_journal(make_run, files, capsys):
    run = make_run()
    before = files(run)
    assert main(["--run", str(run)]) == 0
    assert files(run) == before
    _, *listed, total = capsys.readouterr().out.splitlines()
    shown = {tuple(re.split(" {2,}", line)[2:]) for line in listed}
    assert shown == {(why, str(run / path)) for path, (_, why) in GOES.items()}
    assert total == "6 items; nothing was deleted (--delete does)"
    assert main(["--run", str(run), "--delete", "--yes"]) == 0
    assert "deleted 6 items" in capsys.readouterr().out
    assert files(run) == {*KEPT, "cleanup.jsonl"}
    journal = [json.loads(line) for line in (run / "cleanup.jsonl").read_text().splitlines()]
    assert {os.path.relpath(line["deleted"], run): (line["bytes"], line["why"]) for line in journal} == GOES
    assert all(line["time"] > 1.7e9 for line in journal)


def test_checkpoints_of_an_unfinished_job_stay_for_the_resume(make_run):
    run = make_run(done=False)
    found = {pathlib.Path(leftover.name) for leftover in unneeded(str(run))}
    assert run / "job" / "checkpoints" not in found
    assert run / "job" / "checkpoints" / "half.tmp" in found


def test_a_run_may_be_named_by_a_path_with_dots_or_a_link(make_run, tmp_path, files):
    run = make_run()
    (tmp_path / "latest").symlink_to(run)
    dotted = run / "job" / ".." / ".." / "r1"
    assert unneeded(str(dotted)) == unneeded(str(tmp_path / "latest")) == unneeded(str(run))
    delete(str(dotted), unneeded(str(tmp_path / "latest")))
    assert files(run) == {*KEPT, "cleanup.jsonl"}


def test_a_run_is_running_until_its_driver_has_ended(make_run, refused, files):
    run = make_run()
    before, driver = files(run), lock(run)
    assert "is still running; stop it first" in refused(main, "--run", run, "--delete", "--yes")
    assert files(run) == before
    os.close(driver)
    assert main(["--run", str(run)]) == 0


@pytest.mark.parametrize("content", [None, "{", '{"id": "r1"}', '{"arguments": {}}', "[]"])
def test_a_directory_that_is_no_run_is_refused(tmp_path, refused, files, content):
    (tmp_path / "mine" / "tmp").mkdir(parents=True)
    (tmp_path / "mine" / "tmp" / "precious").touch()
    if content is not None:
        (tmp_path / "mine" / "run.json").write_text(content)
    before = files(tmp_path)
    assert "not the directory of a pipeline run" in refused(main, "--run", tmp_path / "mine", "--delete")
    assert files(tmp_path) == before
    assert "not the directory of a pipeline run" in refused(main, "--run", tmp_path / "nowhere")


@pytest.mark.parametrize("link", ["tmp", "job", "job/checkpoints", "artifacts/r1"])
def test_a_link_to_outside_is_neither_followed_nor_deleted(make_run, tmp_path, files, link):
    run = make_run()
    outside = tmp_path / "outside"
    (run / link).rename(outside)
    (run / link).symlink_to(outside)
    before = files(outside)
    assert before
    found = unneeded(str(run))
    assert found and not any(c.name.startswith(str(run / link)) for c in found)
    delete(str(run), found)
    assert files(outside) == before
    assert (run / link).is_symlink()


def test_of_a_link_in_the_results_the_link_alone_is_deleted(make_run, tmp_path):
    run, outside = make_run(), tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x" * 1000)
    (run / "tmp" / "directory").symlink_to(outside)
    (run / "tmp" / "file").symlink_to(outside / "precious")
    (tmp,) = (c for c in unneeded(str(run), temporary_only=True) if c.name.endswith("/tmp"))
    assert tmp.num_bytes < 500
    delete(str(run), unneeded(str(run)))
    assert not (run / "tmp").exists() and (outside / "precious").exists()


def test_nothing_outside_the_run_can_be_given_to_delete(make_run, tmp_path, files):
    run, other = make_run(), make_run("r2")
    (run / "link").symlink_to(other)
    before = files(tmp_path)
    for path in (other / "tmp", run / "tmp" / ".." / ".." / "r2", run / "tmp" / "..", run, run / "link" / "tmp"):
        with pytest.raises(UserError, match="nothing outside a run is deleted"):
            delete(str(run), [Leftover(name=str(path), why="")])
    assert files(tmp_path) == before | {"runs/r1/cleanup.jsonl"}
