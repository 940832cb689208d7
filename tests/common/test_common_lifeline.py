import subprocess
import threading

import pytest

from common import lifeline
from common.errors import UserError


def test_death_is_noticed_once():
    process = subprocess.Popen(["sleep", "60"])
    calls: list[int] = []
    noticed = threading.Event()
    lifeline.watch(process.pid, lambda: (calls.append(1), noticed.set()))
    assert not noticed.wait(0.1)
    process.kill()
    process.wait()
    assert noticed.wait(2)
    assert calls == [1]


def test_process_gone_counts_as_dead():
    process = subprocess.Popen(["true"])
    process.wait()
    noticed = threading.Event()
    lifeline.watch(process.pid, noticed.set)
    assert noticed.wait(2)


@pytest.mark.parametrize(("text", "pid"), [(None, None), ("", None), ("42", 42)])
def test_owner_pid_from_environment(text, pid):
    assert lifeline.owner_pid({} if text is None else {"PIPELINE_OWNER_PID": text}) == pid


@pytest.mark.parametrize("text", ["me", "-1", " "])
def test_owner_pid_refuses_other_texts(text: str):
    with pytest.raises(UserError, match="PIPELINE_OWNER_PID"):
        lifeline.owner_pid({"PIPELINE_OWNER_PID": text})
