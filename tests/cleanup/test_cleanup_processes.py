import os
import subprocess
import sys

import psutil
import pytest

from components.cleanup.cleanup import stop_replicas
from components.train.supervision.plan import STATUS

pytestmark = pytest.mark.cluster
WAIT = "import signal, sys, time; {}; print('ready', flush=True); time.sleep(60)"


@pytest.fixture
def replica():
    """Starts a process that is told to write a status file, if it is told of one."""
    started = []

    def start(status, ignores_sigterm=False):
        first = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if ignores_sigterm else "pass"
        env = os.environ | ({STATUS: str(status)} if status else {})
        line = [sys.executable, "-S", "-c", WAIT.format(first)]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=env)
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("run", ["runs/a/", "runs/b/../a"])
def test_a_replica_of_this_run_is_stopped_and_no_other_process(replica, tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    others = [
        replica(tmp_path / "runs" / "ab" / "logs" / "chief-0.status.json"),
        replica("chief-0.status.json"),
        replica(""),
    ]
    process = replica(tmp_path / "runs" / "a" / "logs" / "chief-0.status.json")
    assert stop_replicas(run) == [process.pid] and stop_replicas(run) == []
    assert not psutil.pid_exists(process.pid)
    assert [other.poll() for other in others] == [None] * 3


def test_a_replica_that_does_not_listen_is_killed(replica, tmp_path):
    process = replica(tmp_path / "chief-0.status.json", ignores_sigterm=True)
    assert stop_replicas(str(tmp_path)) == [process.pid]
    assert process.wait(1) == -9
