import json
import time

import pytest

from common import provenance
from common.errors import UserError
from common.provenance import RECORDS
from trainer.job import done, identity
from trainer.job import journal as journal_module
from trainer.job.journal import Journal, last

CHIEF = "chief-0"


@pytest.mark.parametrize("content", ["", "null", "{}", '{"identity": 3}'])
def test_a_file_that_is_not_what_was_written_there_is_named(tmp_path, content):
    for name, read in (
        (identity.FILE, lambda: identity.check(str(tmp_path), {})),
        (done.FILE, lambda: done.load(str(tmp_path))),
        (f"assets.extra/{RECORDS}", lambda: provenance.records_of(str(tmp_path))),
        ("assets.extra/dataset.json", lambda: provenance.trained_on(str(tmp_path))),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
        with pytest.raises(
            UserError, match=f"{name} cannot be used .*; put the right one back, or delete it"
        ):
            read()


@pytest.mark.parametrize("beats", [True, False])
def test_journal_shows_status_by_itself(tmp_path, monkeypatch, beats):
    monkeypatch.setattr(journal_module, "_BEAT_S", 0.02)
    monkeypatch.setenv("TRAINER_STATUS", str(tmp_path / "status.json"))
    journal = Journal(str(tmp_path / "job"), CHIEF, beats=beats)
    journal.status("training", 7)
    (tmp_path / "status.json").unlink()
    deadline = time.monotonic() + (30 if beats else 0.2)
    while time.monotonic() < deadline and not (tmp_path / "status.json").exists():
        time.sleep(0.01)
    assert (tmp_path / "status.json").exists() == beats


def test_the_journal_has_a_file_for_each_attempt_and_an_object_a_line(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINER_STATUS", str(tmp_path / "status.json"))
    for _ in range(2):
        journal = Journal(str(tmp_path / "job"), CHIEF)
        journal.event("start", 0, seed=3)
        journal.event("step", 7, loss=0.5)
        journal.status("training", 7, examples_per_s=123.0, loss=0.5)
        journal.status("saving", 7)
    files = sorted(p.name for p in (tmp_path / "job").iterdir())
    assert files == ["journal-chief-0-0.jsonl", "journal-chief-0-1.jsonl"]
    for file in files:
        events = [json.loads(line) for line in (tmp_path / "job" / file).read_text().splitlines()]
        assert [(e["event"], e["step"]) for e in events] == [("start", 0), ("step", 7)]
        assert all(isinstance(e["time"], float) for e in events)
    for attempt in (9, 10):
        lines = [json.dumps({"event": "step", "step": attempt}), '{"event": "st']
        (tmp_path / "job" / f"journal-chief-0-{attempt}.jsonl").write_text("\n".join(lines))
    assert last(str(tmp_path / "job"), CHIEF, "step")["step"] == 10
    assert last(str(tmp_path / "job"), CHIEF, "start")["seed"] == 3
    assert last(str(tmp_path / "job"), CHIEF, "export") == {}
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["phase"], status["step"], status["examples_per_s"], status["loss"]) == (
        "saving",
        7,
        123.0,
        0.5,
    )
    assert time.time() - 60 < status["time"] <= time.time()
