import contextlib
import fcntl
import functools
import os
import re
import socket
import time

import psutil
import pytest
from train_fakes import ONE, guard_of, wait_until

from common import locks
from components.train.__main__ import main
from components.train.supervision.lock import FILE, Launcher, holder, locked
from tests.errors import user_error


@pytest.mark.cluster
def test_second_launcher_is_refused(bench):
    launcher = bench.start(ONE)
    wait_until(bench.starts)
    record = (bench.path / "launcher.jsonl").read_text()
    first = f"process {launcher.pid}, since {time.strftime('%Y')}-.*--stop {bench.path}"
    with user_error(first):
        bench.run(ONE)
    assert (bench.path / "launcher.jsonl").read_text() == record
    assert len(bench.processes()) == 1
    launcher.terminate()
    launcher.communicate()
    assert bench.run(ONE, chief_0="")[0] == 0


@pytest.mark.cluster
def test_guard_outlives_killed_launcher(bench):
    launcher = bench.start(ONE)
    guard = guard_of(launcher)
    guard.suspend()
    launcher.kill()
    # Its parent may be slow.
    wait_until(lambda: psutil.Process(launcher.pid).status() == psutil.STATUS_ZOMBIE)
    assert holder(str(bench.path))
    guard.resume()
    assert bench.run(ONE, chief_0="")[0] == 0
    launcher.communicate()


@contextlib.contextmanager
def holding(path, **changes):
    """Holds the lock as this process, apart from the changes to what the lock file says of it."""
    (path / FILE).write_text(Launcher.of(os.getpid()).model_copy(update=changes).model_dump_json())
    with open(path / FILE) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield holder(str(path))


@pytest.fixture(autouse=True)
def no_signals(monkeypatch):
    monkeypatch.setattr(psutil.Process, "terminate", lambda _: pytest.fail("a signal was sent"))


@pytest.mark.parametrize("host", ["node-7", f"{socket.gethostname()}, pid:[7]"])
def test_holder_elsewhere_is_refused_by_name(tmp_path, host):
    name = re.escape(f"process {os.getpid()} of {host}")
    with holding(tmp_path, host=host) as launcher:
        with user_error(f"{name}.*; run the same command there"):
            main(["--stop", str(tmp_path)])
        with user_error(f"{name}.*end it, there, with"), locked(str(tmp_path)):
            pass
        launcher.terminate()


def test_reused_process_id_is_not_signalled(tmp_path):
    with holding(tmp_path, started=1.0) as launcher:
        launcher.terminate()
        assert launcher.is_here and not launcher.is_alive


def test_holder_writes_its_name_later(tmp_path, monkeypatch):
    launcher = Launcher.of(os.getpid())
    with locks.locked(tmp_path / FILE):
        write = functools.partial((tmp_path / FILE).write_text, launcher.model_dump_json())
        monkeypatch.setattr(time, "sleep", lambda _: write())
        assert holder(str(tmp_path)) == launcher
