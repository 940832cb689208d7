import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from train_fakes import wait_until

from common.errors import UserError
from components.train.supervision.lock import Launcher, Lease

ME = Launcher.of(os.getpid())
ELSEWHERE = ME.model_copy(update={"host": "node-7"})
JOB = "gs://demo/job"
TEXT, OTHER = ME.model_dump_json(), ELSEWHERE.model_dump_json()
GONE = ME.model_copy(update={"pid": 2**22}).model_dump_json()


@pytest.fixture(autouse=True)
def store(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The object of the lock, as a file; it may be written more often than once a second."""
    monkeypatch.setattr("tests.cloud.objects._WRITE_S", 0.0)
    return bucket / "job" / "launcher.lock"


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a launcher of this machine that runs a command; waits until it runs."""
    with contextlib.ExitStack() as launchers:

        def start(command: str) -> subprocess.Popen[str]:
            line = [sys.executable, "-m", "components.train", "--cluster", "clusters/local.yaml"]
            line += ["--job-dir", JOB, "--log-dir", str(tmp_path / command), "--command", command]
            launcher = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
            launchers.enter_context(launcher)
            launchers.callback(launcher.kill)
            log = tmp_path / command / "chief-0.log"
            wait_until(lambda: log.exists() or launcher.poll() is not None)
            return launcher

        yield start


@pytest.mark.cluster
def test_second_launcher_of_bucket_is_refused(store: Path, launch: Callable):
    first = launch("sleep 600")
    second = launch("true")
    error = second.stderr.read()
    assert (second.wait(), error.count("\n")) == (2, 1)
    assert f"a launcher already works on {JOB}: process {first.pid}, since " in error
    first.terminate()
    first.wait()
    assert launch("true").wait() == 0
    assert not store.exists()


@pytest.mark.cluster
def test_launcher_without_its_lock_is_killed(store: Path, launch: Callable):
    launcher = launch("sleep 600")
    store.write_text(OTHER)
    assert f"another launcher has taken over {JOB}; this one is killed" in launcher.stderr.read()
    assert (launcher.wait(), store.read_text()) == (-9, OTHER)


def test_launcher_alive_elsewhere_is_named():
    other = Lease(JOB, ELSEWHERE)
    other.take()
    renewal = threading.Timer(0.1, other.beat)
    renewal.start()
    with pytest.raises(UserError, match=r"process .* of node-7.*end it, there, with"):
        Lease(JOB, ME, lease_s=10).take()
    renewal.join()


@pytest.mark.parametrize("content", [OTHER, GONE, "[" * 9000], ids=["elsewhere", "gone", "hostile"])
def test_silent_lock_is_taken_over(store: Path, content: str):
    other, lock = Lease(JOB, ELSEWHERE), Lease(JOB, ME, lease_s=0.1)
    other.take()
    store.write_text(content)
    lock.take()
    assert store.read_text() == TEXT
    assert not other.beat()
    other.release()
    assert lock.beat()
    assert store.exists()
    lock.release()
    assert not store.exists()


def test_lock_survives_lost_answer_and_deletion(store: Path):
    lock = Lease(JOB, ME)
    lock.take()
    store.write_text(TEXT)  # As by a request whose answer was lost.
    assert lock.beat()
    Lease(JOB, ME).take()
    store.unlink()
    assert lock.beat()
    assert store.read_text() == TEXT
