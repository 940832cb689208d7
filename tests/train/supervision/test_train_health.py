import json
import signal
import subprocess
from pathlib import Path

import pytest
from train_fakes import wait_until

from components.train.supervision.health import Patience, Vitals

LIMITS = Patience(start_s=100, silence_s={"training": 10, "starting": 50}, stopped_s=5)


def vitals(path: Path, **state: object) -> Vitals:
    """Returns the vitals of a replica that wrote this state at second 1000."""
    return vitals_of(path, json.dumps(state).encode())


def vitals_of(path: Path, content: bytes) -> Vitals:
    (path / "status.json").write_bytes(content)
    status = Vitals(str(path / "status.json"), started=1000.0)
    status.read(1000.0)
    return status


def test_silence_is_judged_by_phase(tmp_path: Path):
    status = vitals(tmp_path, phase="training", step=7)
    assert not status.frozen(1009.9, LIMITS, reports=True)
    assert status.frozen(1010.0, LIMITS, reports=False) == "no sign of life for 10 s while training"
    (tmp_path / "new").write_text('{"phase": "training", "step": 7}')
    (tmp_path / "new").rename(tmp_path / "status.json")
    status.read(1008.0)
    assert not status.frozen(1015.0, LIMITS, reports=True)
    assert status.frozen(1018.0, LIMITS, reports=True)
    assert not vitals(tmp_path, phase="done", step=0).frozen(99_999.0, LIMITS, reports=True)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1]", b'{"phase": "training"}', b"\xff", b'{"phase": "x", "step": "x"}'],
)
def test_unusable_status_counts_as_none(tmp_path: Path, content: bytes):
    status = vitals_of(tmp_path, content)
    assert (status.phase, status.step) == ("", None)
    assert status.frozen(1100.0, LIMITS, reports=True) == "not up after 100 s"
    assert not status.frozen(9999.0, LIMITS, reports=False)


@pytest.mark.parametrize(
    ("state", "summary"),
    [
        ({"phase": "starting"}, "p"),
        ({"phase": "training"}, "p, step 3"),
        ({"phase": "training", "examples_per_s": "fast"}, "p, step 3"),
        ({"phase": "training", "examples_per_s": 1234.5}, "p, step 3, 1,234 examples/s"),
    ],
)
def test_summary_shows_step_and_speed(tmp_path: Path, state: dict[str, object], summary: str):
    assert vitals(tmp_path, step=3, **state).summary("p") == summary


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
