import os
import threading

import pytest
from train_fakes import ONE, wait_until

from components.train.supervision.lock import Launcher, Lease
from tests.errors import user_error

ME = Launcher.of(os.getpid())
ELSEWHERE = ME.model_copy(update={"host": "node-7"})
JOB = "gs://demo/job"
TEXT, OTHER = ME.model_dump_json(), ELSEWHERE.model_dump_json()
GONE = ME.model_copy(update={"pid": 2**22}).model_dump_json()


@pytest.fixture(autouse=True)
def store(bucket):
    """The object of the lock, as a file."""
    return bucket / "job" / "launcher.lock"


@pytest.mark.cluster
def test_launcher_without_its_lock_is_killed(bench, store, capfd):
    assert bench.run(ONE, job_dir=JOB, chief_0="")[0] == 0
    assert not store.exists()
    launcher = bench.start(ONE, job_dir=JOB)
    store.write_text(OTHER)
    launcher.communicate()
    assert (launcher.returncode, store.read_text()) == (-9, OTHER)
    error = f"another launcher has taken over {JOB}; this one is killed"
    assert error in capfd.readouterr().err
    wait_until(lambda: not bench.processes())


def test_launcher_alive_elsewhere_is_named():
    other = Lease(JOB, ELSEWHERE)
    other.take()
    renewal = threading.Timer(1, other.beat)
    renewal.start()
    with user_error(r"process .* of node-7.*end it, there, with"):
        Lease(JOB, ME, lease_s=10).take()
    renewal.join()


@pytest.mark.parametrize("content", [OTHER, GONE, "[" * 9000], ids=["elsewhere", "gone", "hostile"])
def test_silent_lock_is_taken_over(store, content):
    other, lock = Lease(JOB, ELSEWHERE), Lease(JOB, ME, lease_s=0.1)
    other.take()
    store.write_text(content)
    lock.take()
    assert store.read_text() == TEXT
    assert not other.beat()
    other.release()
    assert store.exists() and lock.beat()
    lock.release()
    assert not store.exists()


def test_lock_survives_lost_answer_and_deletion(store):
    lock = Lease(JOB, ME)
    lock.take()
    store.write_text(TEXT)  # As by a request whose answer was lost.
    assert lock.beat()
    Lease(JOB, ME).take()
    store.unlink()
    assert lock.beat()
    assert store.read_text() == TEXT
