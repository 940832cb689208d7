import argparse
import os
import pathlib
import time

import pytest
import tensorflow as tf
from etils.epath import backend

from trainer import main_loop
from trainer.cluster.member import Member
from trainer.cluster.shutdown import Stop
from trainer.job import journal
from trainer.job.outbox import Outbox


def test_files_of_a_store_are_copied_when_they_are_asked_for_and_only_if_they_have_grown(store):
    box = Outbox(str(store / "job"), 60)
    ours = pathlib.Path(box.path("logs", "train", "events"))
    ours.write_bytes(b"one")
    copy = store / "job" / "logs" / "train" / "events"
    assert not copy.exists()

    box.send()
    assert copy.read_bytes() == b"one"
    copy.unlink()
    box.send()
    assert not copy.exists()
    ours.write_bytes(b"one, two")
    box.send()
    assert copy.read_bytes() == b"one, two"


def test_files_of_a_store_are_copied_now_and_then(store):
    box = Outbox(str(store / "job"), 0.05)
    ours, copy = pathlib.Path(box.path("journal.jsonl")), store / "job" / "journal.jsonl"
    for text in ("one", "one, two"):
        ours.write_text(text)
        deadline = time.monotonic() + 30
        while not (copy.exists() and copy.read_text() == text):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_store_that_fails_is_told_of_and_gets_the_files_later(store, monkeypatch, capsys):
    box = Outbox(str(store / "job"), 60)
    pathlib.Path(box.path("journal.jsonl")).write_text("{}\n")

    def refuse(*_: object) -> None:
        raise tf.errors.UnavailableError(None, None, "it is away")

    with monkeypatch.context() as patch:
        patch.setattr(backend._TfBackend, "open", refuse)
        box.send()
    assert capsys.readouterr().out.startswith(f"{store / 'job'}: journal and events could not be copied")
    box.send()
    assert (store / "job" / "journal.jsonl").read_text() == "{}\n" and not capsys.readouterr().out


@pytest.mark.parametrize("how", ["done", "error", "at once"])
def test_however_a_replica_ends_the_store_has_its_journal(store, monkeypatch, how):
    def play(*arguments: object) -> int:
        stop, own = arguments[-2:]
        own.event("last", 7)
        if how == "error":
            raise ConnectionError
        return stop.end(134) if how == "at once" else 0

    monkeypatch.setattr(main_loop, "configure", lambda opts: None)
    monkeypatch.setattr(main_loop, "_run", play)
    monkeypatch.setattr(os, "_exit", lambda code: code)
    member = Member(role="worker", index=0, addresses={})
    try:
        main_loop.run(argparse.Namespace(job_dir=str(store), patience=None, precision="float32"), member, None, Stop())
    except ConnectionError:
        assert how == "error"
    assert journal.last(str(store), "worker-0", "last")["step"] == 7
