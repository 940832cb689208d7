import contextlib
import dataclasses
import fcntl
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from train_fakes import ONE, Bench, guard_of, wait_until

from common.errors import UserError
from components.train.__main__ import main
from components.train.supervision.lock import FILE, Launcher, holder, locked


@pytest.mark.cluster
def test_second_launcher_is_refused(bench: Bench):
    launcher = bench.start(bench.plan(ONE))
    wait_until(bench.starts)
    record = (bench.path / "launcher.jsonl").read_text()
    year = time.strftime("%Y")
    with pytest.raises(
        UserError,
        match=rf"process {launcher.pid}, since {year}-.*--stop {re.escape(str(bench.path))}",
    ):
        bench.run(bench.plan(ONE))
    assert (bench.path / "launcher.jsonl").read_text() == record
    assert len(bench.processes()) == 1
    launcher.terminate()
    launcher.communicate()
    assert bench.run(bench.plan(ONE, chief_0=""))[0] == 0


@pytest.mark.cluster
def test_guard_outlives_killed_launcher(bench: Bench):
    launcher = bench.start(bench.plan(ONE))
    guard = guard_of(launcher)
    guard.suspend()
    launcher.kill()
    wait_until(
        lambda: psutil.Process(launcher.pid).status() == psutil.STATUS_ZOMBIE
    )  # Its parent may be slow.
    assert holder(str(bench.path))
    guard.resume()
    assert bench.run(bench.plan(ONE, chief_0=""))[0] == 0
    launcher.communicate()


@pytest.fixture
def signals() -> Iterator[list[int]]:
    """Yields the list of the SIGTERM signals that this process receives."""
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    yield received
    signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def holding(path: Path, **changes: object) -> Iterator[None]:
    """Holds the lock as this process, apart from the changes to what the lock file says of it."""
    (path / FILE).write_text(Launcher.of(os.getpid()).model_copy(update=changes).model_dump_json())
    with open(path / FILE) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("host", ["node-7", f"{socket.gethostname()}, pid:[7]"])
def test_holder_elsewhere_is_refused_by_name(tmp_path: Path, signals: list[int], host: str):
    name = re.escape(f"process {os.getpid()} of {host}")
    with holding(tmp_path, host=host):
        with pytest.raises(UserError, match=f"{name}.*; run the same command there"):
            main(["--stop", str(tmp_path)])
        with pytest.raises(UserError, match=f"{name}.*end it, there, with"), locked(str(tmp_path)):
            pass
        holder(str(tmp_path)).terminate()
    assert not signals


def test_holder_without_name_is_unknown(tmp_path: Path):
    with holding(tmp_path):
        (tmp_path / FILE).write_text("")  # As of a launcher that has only just taken the lock.
        assert holder(str(tmp_path)).name == "process 0 of an unknown host"


def test_reused_process_id_is_not_signalled(tmp_path: Path, signals: list[int]):
    with holding(tmp_path, started=1.0):
        launcher = holder(str(tmp_path))
        launcher.terminate()
    assert launcher.is_here and not launcher.is_alive
    assert not signals


def test_unusable_directory_is_user_error(bench: Bench):
    (bench.path / "file").touch()
    plan = dataclasses.replace(bench.plan(ONE), job_dir=str(bench.path / "file"))
    with pytest.raises(UserError, match=r"cannot write to .*/file: File exists"):
        bench.run(plan)
