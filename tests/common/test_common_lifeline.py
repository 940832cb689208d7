import os
import subprocess
import threading

import pytest

from common import lifeline
from common.errors import UserError


@pytest.fixture(params=["pidfd", "poll"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "poll":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
        monkeypatch.setattr(lifeline, "_POLL_S", 0.01)


def test_death_is_noticed_once(way: None):
    process = subprocess.Popen(["sleep", "60"])
    calls: list[int] = []
    noticed = threading.Event()
    lifeline.watch(process.pid, lambda: (calls.append(1), noticed.set()))
    assert not noticed.wait(0.1)
    process.kill()
    process.wait()
    assert noticed.wait(2)
    assert calls == [1]


def test_process_already_gone_counts_as_dead(way: None):
    process = subprocess.Popen(["true"])
    process.wait()
    noticed = threading.Event()
    lifeline.watch(process.pid, noticed.set)
    assert noticed.wait(2)


@pytest.mark.parametrize(("text", "pid"), [(None, None), ("", None), ("42", 42)])
def test_owner_is_read_from_the_environment(text, pid):
    assert lifeline.owner_pid({} if text is None else {"PIPELINE_OWNER_PID": text}) == pid


@pytest.mark.parametrize("text", ["me", "-1", " "])
def test_what_is_no_process_id_is_refused(text: str):
    with pytest.raises(UserError, match="PIPELINE_OWNER_PID"):
        lifeline.owner_pid({"PIPELINE_OWNER_PID": text})
