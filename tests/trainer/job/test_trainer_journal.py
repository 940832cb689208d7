"""Tests of a replica's journal, also in a store, and of one that was cut."""

import json
import time

import pytest

from tests.programs import wait_until
from trainer.job import journal
from trainer.job.journal import Journal, last

CHIEF = "chief-0"


def test_journal_begins_file_each_attempt(tmp_path):
    job = tmp_path / "job"
    for seed in range(11):
        own = Journal(str(job), CHIEF)
        own.event("start", 0, seed=seed)
    assert len([*job.iterdir()]) == 11
    assert last(str(job), CHIEF, "start")["seed"] == 10  # attempt 10 is newer than attempt 9
    assert last(str(job), CHIEF, "export") == {}


def test_cut_journal_is_read_so_far(tmp_path):
    lines = [json.dumps({"event": "step", "step": step}) for step in (1, 2, 3)]
    content = "\n".join(lines)
    for size in range(len(content) + 1):
        (tmp_path / "journal-chief-0-0.jsonl").write_text(content[:size])
        complete = [json.loads(line) for line in lines if line in content[:size]]
        assert [*journal.events(tmp_path, CHIEF)] == complete[::-1]


@pytest.mark.long
def test_journal_goes_on_by_itself(store, tmp_path, monkeypatch):
    """A status is shown, and a store gets what has grown, while the main thread waits."""
    status, sleep = tmp_path / "status.json", time.sleep
    monkeypatch.setenv("TRAINER_STATUS", str(status))
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(min(seconds, 0.02)))
    job = str(store / "job")
    own = Journal(job, CHIEF, beats=True)
    own.event("start", 0)
    own.status("training", 0)
    own.send()
    own.event("step", 1)
    status.unlink()
    wait_until(lambda: status.exists() and last(job, CHIEF, "step"))
