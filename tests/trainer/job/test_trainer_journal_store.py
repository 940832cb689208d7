import os
import pathlib
import time

import pytest
import tensorflow as tf
from etils.epath import backend

from common import flags, quiet
from trainer import main_loop, task
from trainer.cluster.shutdown import Stop
from trainer.job import journal
from trainer.job.journal import Journal


def test_files_of_a_store_are_copied_when_they_are_asked_for_and_only_if_they_have_grown(store):
    own = Journal(str(store / "job"), "chief-0")
    ours = pathlib.Path(own.path("logs", "train", "events"))
    ours.write_bytes(b"one")
    copy = store / "job" / "logs" / "train" / "events"
    assert not copy.exists()

    own.send()
    assert copy.read_bytes() == b"one"
    copy.unlink()
    own.send()
    assert not copy.exists()
    ours.write_bytes(b"one, two")
    own.send()
    assert copy.read_bytes() == b"one, two"


def test_files_of_a_store_are_copied_now_and_then(store, monkeypatch):
    monkeypatch.setattr(journal, "_SENT_EVERY_S", 0.05)
    own = Journal(str(store / "job"), "chief-0")
    for step in (1, 2):
        own.event("step", step)
        deadline = time.monotonic() + 30
        while (
            not (store / "job").exists()
            or journal.last(str(store / "job"), "chief-0", "step").get("step") != step
        ):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_store_that_fails_is_told_of_and_gets_the_files_later(store, monkeypatch, capsys):
    own = Journal(str(store / "job"), "chief-0")
    own.event("start", 0)

    def refuse(*_: object) -> None:
        raise tf.errors.UnavailableError(None, None, "it is away")

    with monkeypatch.context() as patch:
        patch.setattr(backend._TfBackend, "open", refuse)
        own.send()
    assert capsys.readouterr().out.startswith(
        f"{store / 'job'}: journal and events could not be copied"
    )
    own.send()
    assert (
        journal.last(str(store / "job"), "chief-0", "start")["step"] == 0
        and not capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("how", "code"), [("done", 0), ("error", 1), ("at once", 134), ("interrupted", 130)]
)
def test_however_a_replica_ends_the_store_has_its_journal(digits, store, monkeypatch, how, code):
    def play(*arguments: object) -> int:
        own, stop, _ = arguments[-3:]
        own.event("last", 7)
        if how == "error":
            raise ConnectionError
        if how == "interrupted":
            raise KeyboardInterrupt
        return stop.end(134) if how == "at once" else 0

    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(flags, "place", str)  # which refuses the store of tests
    monkeypatch.setattr(quiet, "lost_replicas", lambda: None)
    monkeypatch.setattr(Stop, "install", Stop)
    monkeypatch.setattr(main_loop, "main_loop", play)
    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(SystemExit) as ended:
        task.main(
            ["--data-dir", str(digits), "--job-dir", str(store / "job"), "--train-steps", "9"]
        )
    assert ended.value.code == code
    assert journal.last(str(store / "job"), "chief-0", "last")["step"] == 7
