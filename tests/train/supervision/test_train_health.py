import json
import signal
import subprocess
from pathlib import Path

import pytest
from train_fakes import wait_until

from components.train.supervision.health import Patience, Vitals

LIMITS = Patience(start_s=100, silence_s={"training": 10, "starting": 50}, stopped_s=5)


def vitals(path: Path, content: bytes) -> Vitals:
    """Returns the vitals of a replica whose status file had this content at second 1000."""
    (path / "status.json").write_bytes(content)
    status = Vitals(str(path / "status.json"), started=1000.0)
    status.read(1000.0)
    return status


def test_silence_is_judged_by_phase(tmp_path: Path):
    training, done = (
        json.dumps({"phase": phase, "step": 7}).encode() for phase in ("training", "done")
    )
    status = vitals(tmp_path, training)
    assert not status.frozen(1009.9, LIMITS, reports=True)
    assert status.frozen(1010.0, LIMITS, reports=False) == "no sign of life for 10 s while training"
    (tmp_path / "new").write_bytes(training)
    (tmp_path / "new").rename(tmp_path / "status.json")
    status.read(1008.0)
    assert not status.frozen(1017.9, LIMITS, reports=True)
    assert status.frozen(1018.0, LIMITS, reports=True)
    assert not vitals(tmp_path, done).frozen(99_999.0, LIMITS, reports=True)


@pytest.mark.parametrize("content", [b"{", b"[1]", b'{"phase": "x"}', b"\xff"])
def test_unusable_status_counts_as_none(tmp_path: Path, content: bytes):
    status = vitals(tmp_path, content)
    assert (status.phase, status.step) == ("", None)
    assert status.frozen(1100.0, LIMITS, reports=True) == "not up after 100 s"
    assert not status.frozen(9999.0, LIMITS, reports=False)


def test_stopped_process_is_frozen_after_limit():
    with subprocess.Popen(["sleep", "60"]) as process:
        status = Vitals("no status", process.pid, 1000.0)
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: status.stopped)
        status.read(1000.0)
        status.read(1004.0)
        assert not status.frozen(1004.0, LIMITS, reports=False)
        assert status.frozen(1005.0, LIMITS, reports=False) == "stopped for 5 s"
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: not status.stopped)
        status.read(1006.0)
        assert not status.frozen(1006.0, LIMITS, reports=False)
        process.kill()
