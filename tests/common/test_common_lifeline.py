import subprocess
import threading

from common import lifeline
from tests.errors import user_error


def test_death_is_noticed_once():
    process, calls, noticed = subprocess.Popen(["sleep", "60"]), [], threading.Event()
    lifeline.watch(process.pid, lambda: (calls.append(1), noticed.set()))
    assert not noticed.wait(0.1)
    process.kill()
    process.wait()
    assert noticed.wait(2)
    gone = threading.Event()
    lifeline.watch(process.pid, gone.set)
    assert gone.wait(2)
    assert calls == [1]


def test_owner_pid_from_environment():
    for environ, pid in (({}, None), ({"PIPELINE_OWNER_PID": "42"}, 42)):
        assert lifeline.owner_pid(environ) == pid
    for text in ("me", "-1"):
        with user_error("PIPELINE_OWNER_PID"):
            lifeline.owner_pid({"PIPELINE_OWNER_PID": text})
