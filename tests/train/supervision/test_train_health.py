import signal
import subprocess

from train_fakes import wait_until

from components.train.supervision.health import Patience, Vitals

LIMITS = Patience(start_s=100, silence_s={"training": 10, "starting": 50}, stopped_s=5)


def vitals(path, content):
    """Returns the vitals of a replica whose status file had this content at second 1000."""
    (path / "new").write_text(content)
    (path / "new").rename(path / "status.json")
    status = Vitals(str(path / "status.json"), started=1000.0)
    status.read(1000.0)
    return status


def test_silence_is_judged_by_phase(tmp_path):
    training = '{"phase": "training", "step": 7}'
    status = vitals(tmp_path, training)
    assert status.frozen(1010.0, LIMITS, reports=False) == "no sign of life for 10 s while training"
    vitals(tmp_path, training)
    status.read(1008.0)
    assert not status.frozen(1017.9, LIMITS, reports=True)
    assert status.frozen(1018.0, LIMITS, reports=True)
    done = vitals(tmp_path, training.replace("training", "done"))
    assert not done.frozen(99_999.0, LIMITS, reports=True)
    silent = Vitals("no status", started=1000.0)
    silent.read(1100.0)
    assert silent.frozen(1100.0, LIMITS, reports=True) == "not up after 100 s"
    assert not silent.frozen(9999.0, LIMITS, reports=False)


def test_stopped_process_is_frozen_after_limit():
    with subprocess.Popen(["sleep", "60"]) as process:
        status = Vitals("no status", process.pid, 1000.0)
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: status.stopped)
        status.read(1000.0)
        status.read(1004.0)
        process.kill()
    assert not status.frozen(1004.0, LIMITS, reports=False)
    assert status.frozen(1005.0, LIMITS, reports=False) == "stopped for 5 s"
