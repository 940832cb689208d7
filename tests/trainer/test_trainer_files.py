from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer import done, identity
from trainer.cluster import Member
from trainer.done import Done
from trainer.errors import UserError
from trainer.files import tree_digest, write_text
from trainer.journal import Journal

CHIEF = Member(role="chief", index=0, addresses={})


def test_a_failed_write_leaves_the_old_content_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")  # no such character in UTF-8
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(["a", "b", "c/d", "c/e"]), st.binary(max_size=8), min_size=1))
def test_the_digest_of_a_tree_follows_names_and_contents(tmp_path_factory, files):
    def write(directory):
        for name, content in files.items():
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_bytes(content)
        return directory

    one, two = write(tmp_path_factory.mktemp("one")), write(tmp_path_factory.mktemp("two"))
    assert tree_digest(one) == tree_digest(two)
    name = sorted(files)[0]
    (two / name).write_bytes(files[name] + b"!")
    assert tree_digest(one) != tree_digest(two)
    (two / name).write_bytes(files[name])
    (two / name).rename(two / "renamed")
    assert tree_digest(one) != tree_digest(two)


def test_a_job_is_done_when_its_record_is_there(tmp_path):
    assert done.load(str(tmp_path)) is None
    record = Done(step=3, epochs=0.5, loss=0.5, accuracy=0.25, validation={}, seconds=1.5, examples_per_s=10.0)
    record.save(str(tmp_path))
    assert done.load(str(tmp_path)) == record


def test_a_resume_with_other_settings_lists_every_difference(tmp_path):
    identity.claim(str(tmp_path), {"seed": 0, "model": "cnn", "fingerprint": "a"})
    identity.check(str(tmp_path), {"seed": 0, "model": "cnn", "fingerprint": "a"})
    with pytest.raises(UserError, match=r"fingerprint: 'a' -> 'b'; seed: 0 -> 1"):
        identity.check(str(tmp_path), {"seed": 1, "model": "cnn", "fingerprint": "b"})


def test_a_new_job_directory_is_for_anything(tmp_path):
    identity.check(str(tmp_path / "new"), {"seed": 1})


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
    status = json.loads((tmp_path / "status.json").read_text())
    assert {"time", "cpu"} <= status.keys()
    assert (status["phase"], status["step"], status["examples_per_s"], status["loss"]) == ("saving", 7, 123.0, 0.5)
    assert status["memory"] > 1_000_000


def test_sigterm_is_seen_by_a_thread_even_when_the_main_thread_sits_in_c():
    program = (
        "import os, threading, time; from trainer.stop import EXIT_CODE, Stop; stop = Stop.install();"
        "stop.call(lambda: os._exit(EXIT_CODE if stop.requested else 1)); print('ready', flush=True);"
        "lock = threading.Lock(); lock.acquire(); lock.acquire()"  # Python handlers never run in here
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(5) == 143
