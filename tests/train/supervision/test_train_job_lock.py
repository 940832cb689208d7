import dataclasses
import fcntl
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from train_fakes import ONE, Bench, guard_of, wait_until

from common.errors import UserError
from components.train.__main__ import main
from components.train.supervision.lock import FILE, holder, locked


@pytest.mark.cluster
def test_second_launcher_is_refused(bench: Bench):
    launcher = bench.start(bench.plan(ONE))
    wait_until(bench.starts)
    record = (bench.path / "launcher.jsonl").read_text()
    year = time.strftime("%Y")
    with pytest.raises(UserError, match=rf"process {launcher.pid}, since {year}-.*--stop {re.escape(str(bench.path))}"):
        bench.run(bench.plan(ONE))
    assert (bench.path / "launcher.jsonl").read_text() == record
    assert len(bench.processes()) == 1
    launcher.terminate()
    launcher.communicate()
    assert bench.run(bench.plan(ONE, chief_0=""))[0] == 0


@pytest.mark.cluster
def test_killed_launcher_is_over_with_its_guard(bench: Bench):
    launcher = bench.start(bench.plan(ONE))
    guard = guard_of(launcher)
    guard.suspend()
    launcher.kill()
    wait_until(lambda: psutil.Process(launcher.pid).status() == psutil.STATUS_ZOMBIE)  # Its parent may be slow.
    assert holder(str(bench.path))
    guard.resume()
    assert bench.run(bench.plan(ONE, chief_0=""))[0] == 0
    launcher.communicate()


def crafted(path: Path, **changes: object) -> None:
    """The lock file of a holder that is this process but for the changes."""
    with locked(str(path)):
        me = holder(str(path))
    (path / FILE).write_text(me.model_copy(update=changes).model_dump_json())


ELSEWHERE = [
    ({"host": "node-7"}, "process 1 of node-7"),
    ({"host": f"{socket.gethostname()}, pid:[7]"}, f"process 1 of {socket.gethostname()}, pid:[7]"),
]


@pytest.mark.parametrize(("changes", "name"), ELSEWHERE)
def test_holder_elsewhere_is_named_and_not_signalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], name: str
):
    sent = []
    monkeypatch.setattr(os, "kill", lambda *words: sent.append(words))
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *words: sent.append(words))
    crafted(tmp_path, pid=1, **changes)
    with open(tmp_path / FILE) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UserError, match=f"{re.escape(name)}.*; run the same command there"):
            main(["--stop", str(tmp_path)])
        with pytest.raises(UserError, match=f"{re.escape(name)}.*end it, there, with"), locked(str(tmp_path)):
            pass
        holder(str(tmp_path)).terminate()
    assert not sent


def test_holder_without_name_is_nowhere(tmp_path: Path):
    with open(tmp_path / FILE, "w") as file:  # As of a launcher that has only just taken it.
        fcntl.flock(file, fcntl.LOCK_EX)
        assert holder(str(tmp_path)).name == "process 0 of an unknown host"


def test_reused_process_id_is_not_signalled(tmp_path: Path):
    with subprocess.Popen(["sleep", "60"]) as other:
        crafted(tmp_path, pid=other.pid, started=1.0)
        with open(tmp_path / FILE) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            found = holder(str(tmp_path))
            found.terminate()
            assert found.is_here and not found.is_alive
        assert other.poll() is None
        other.kill()


def test_unusable_directory_is_user_error(bench: Bench):
    (bench.path / "file").touch()
    plan = dataclasses.replace(bench.plan(ONE), job_dir=str(bench.path / "file"))
    with pytest.raises(UserError, match=r"cannot write to .*/file: File exists"):
        bench.run(plan)
