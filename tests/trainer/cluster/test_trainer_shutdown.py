import pytest

from tests.programs import start_python
from trainer.cluster import shutdown


def test_exit_codes_that_launcher_retries(monkeypatch):
    monkeypatch.delenv("CLOUD_ML_JOB_ID", raising=False)
    assert (shutdown.saved_code(), shutdown.failed_code()) == (143, 1)
    monkeypatch.setenv("CLOUD_ML_JOB_ID", "7")
    assert (shutdown.saved_code(), shutdown.failed_code()) == (134, 134)


STOP = (
    "import os, signal, threading, time; from trainer.cluster.shutdown import Stop; stop = "
    "Stop.install()\n"
)
INSIDE = "with stop.at_once(): print('ready', flush=True); time.sleep(60)\n"
SIGTERM = "os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.2)\n"


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("with stop.at_once(): pass\n" + INSIDE, 143),  # nothing to save
        (SIGTERM + INSIDE, 143),
        (
            "def fail(): 1 / 0\nstop.last = fail\n" + INSIDE.replace("()", "(fail)", 1),
            143,
        ),  # whatever fails at the end
        (
            "with stop.at_once(): pass\n" + SIGTERM + "assert stop.requested; print('ready')",
            0,
        ),  # only noted
        (  # a main thread in C, where Python's handlers never run
            INSIDE.replace(
                "time.sleep(60)", "lock = threading.Lock(); lock.acquire(); lock.acquire()"
            ),
            143,
        ),
    ],
    ids=["inside", "before", "fails", "after", "in C"],
)
def test_sigterm_ends_what_need_not_save(program, code):
    process = start_python("-c", STOP + program)
    process.stdout.readline()
    process.terminate()
    assert process.wait(5) == code
