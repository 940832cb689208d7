import json
import signal
import subprocess
from pathlib import Path

import pytest
from train_fakes import wait_until

from components.train.supervision.health import Patience, Vitals

LIMITS = Patience(start_s=100, silence_s={"training": 10, "starting": 50}, stopped_s=5)


def vitals(path: Path, text: str = "") -> Vitals:
    if text:
        (path / "new").write_bytes(text.encode("latin-1"))
        (path / "new").rename(path / "status.json")
    found = Vitals(str(path / "status.json"), started=1000.0)
    found.read(1000.0)
    return found


def test_silence_is_judged_by_phase(tmp_path: Path):
    text = json.dumps({"phase": "training", "step": 7})
    found = vitals(tmp_path, text)
    assert not found.frozen(1009.9, LIMITS, reports=True)
    assert found.frozen(1010.0, LIMITS, reports=False) == "no sign of life for 10 s while training"
    vitals(tmp_path, text)
    found.read(1008.0)
    assert not found.frozen(1015.0, LIMITS, reports=True)
    assert found.frozen(1018.0, LIMITS, reports=True)
    assert not vitals(tmp_path, '{"phase": "done", "step": 0}').frozen(99_999.0, LIMITS, reports=True)


def test_absence_is_judged_only_where_reports_are_due(tmp_path: Path):
    absent = vitals(tmp_path)
    assert absent.frozen(1100.0, LIMITS, reports=True) == "not up after 100 s"
    assert not absent.frozen(9999.0, LIMITS, reports=False)


@pytest.mark.parametrize(
    ("text", "phase", "step"),
    [
        *((text, "", None) for text in ("{", "[1]", '{"phase": "training"}', "\xff", '{"phase": "x", "step": "x"}')),
        ('{"phase": "starting", "step": 3}', "starting", None),
        ('{"phase": "training", "step": 3}', "training", 3),
    ],
)
def test_status_is_read_or_passed_over(tmp_path: Path, text: str, phase: str, step: int | None):
    found = vitals(tmp_path, text)
    assert (found.phase, found.step, bool(found.state)) == (phase, step, bool(phase))


@pytest.mark.parametrize(("speed", "shown"), [("fast", ""), (None, ""), ([1], ""), (1234.5, ", 1,234 examples/s")])
def test_speed_that_is_no_number_is_not_shown(tmp_path: Path, speed: object, shown: str):
    found = vitals(tmp_path, json.dumps({"phase": "training", "step": 3, "examples_per_s": speed}))
    assert found.summary("training") == f"training, step 3{shown}"


def test_stopped_process_is_frozen_after_a_while():
    process = subprocess.Popen(["sleep", "60"])
    try:
        found = Vitals("no status", process.pid, 1000.0)
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: found.stopped)
        found.read(1000.0)
        found.read(1004.0)
        assert not found.frozen(1004.0, LIMITS, reports=False)
        assert found.frozen(1005.0, LIMITS, reports=False) == "stopped for 5 s"
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: not found.stopped)
        found.read(1006.0)
        assert not found.frozen(1006.0, LIMITS, reports=False)
    finally:
        process.kill()
        process.wait()
