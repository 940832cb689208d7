from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from train_fakes import ONE, Bench, wait_until

from components.train.job_lock import holder, locked
from trainer.errors import UserError

HOLD = "import sys, time\nfrom components.train.job_lock import locked\nwith locked(sys.argv[1]): print('', flush=True); time.sleep(60)"


def test_second_launcher_is_refused_with_who_and_since_when_and_changes_nothing(bench: Bench):
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


def test_launcher_that_was_killed_is_over_only_when_its_guard_has_done_its_work(bench: Bench):
    launcher = bench.start(bench.plan(ONE))
    (guard,) = [c for c in psutil.Process(launcher.pid).children() if "guard.py" in " ".join(c.cmdline())]
    guard.suspend()
    launcher.kill()
    wait_until(lambda: psutil.Process(launcher.pid).status() == psutil.STATUS_ZOMBIE)  # Its parent may be slow.
    assert holder(str(bench.path))
    guard.resume()
    assert bench.run(bench.plan(ONE, chief_0=""))[0] == 0
    launcher.communicate()


def test_holder_tells_process_and_time_while_it_lives(tmp_path: Path):
    assert holder(str(tmp_path)) is None
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        found = holder(str(tmp_path))
        assert found["pid"] == process.pid
        assert 0 <= time.time() - found["since"] < 30
        process.kill()
    wait_until(lambda: holder(str(tmp_path)) is None)


def test_directory_that_cannot_be_is_a_user_error(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write to"), locked(str(tmp_path / "file")):
        pass
