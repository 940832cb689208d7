import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from train_fakes import wait_until

from components.train.supervision.health import Vitals
from components.train.supervision.timeouts import Patience

LIMITS = Patience(start_s=100, silence_s={"training": 10, "starting": 50}, stopped_s=5)


def vitals(path: Path, **state: object) -> Vitals:
    found = Vitals(str(path / "status.json"), os.getpid(), 1000.0)
    if state:
        (path / "status.json").write_text(json.dumps(state))
    found.look(1000.0)
    return found


def test_silence_and_absence_are_judged_by_what_the_program_tells(tmp_path: Path):
    found = vitals(tmp_path, phase="training", step=7)
    assert not found.frozen(1009.9, LIMITS, reports=True)
    assert found.frozen(1010.0, LIMITS, reports=True) == "no sign of life for 10 s while training"
    assert found.frozen(1010.0, LIMITS, reports=False)
    (tmp_path / "new").write_text(json.dumps({"phase": "training", "step": 7}))
    (tmp_path / "new").rename(tmp_path / "status.json")
    found.look(1008.0)
    assert not found.frozen(1015.0, LIMITS, reports=True)
    assert found.frozen(1018.0, LIMITS, reports=True)
    serving = vitals(tmp_path, phase="serving", step=0)
    assert serving.frozen(1060.0, Patience(), reports=True) == "no sign of life for 60 s while serving"
    ended = vitals(tmp_path, phase="done", step=0)
    assert not ended.frozen(99_999.0, LIMITS, reports=True)
    (tmp_path / "status.json").unlink()
    absent = vitals(tmp_path)
    assert absent.frozen(1100.0, LIMITS, reports=True) == "not up after 100 s"
    assert not absent.frozen(9999.0, LIMITS, reports=False)


TOLD = [
    *((text, "", None) for text in ("", "{", "[1]", '{"phase": "training"}', "\xff")),
    *((f'{{"phase": "{phase}", "step": 3}}', phase, None) for phase in ("starting", "serving")),
    *((f'{{"phase": "{phase}", "step": 3}}', phase, 3) for phase in ("training", "done")),
    ('{"phase": "training", "step": "x"}', "", None),
]


@pytest.mark.parametrize(("text", "phase", "step"), TOLD)
def test_step_counts_once_it_trains_and_a_status_that_makes_no_sense_is_passed_over(
    tmp_path: Path, text: str, phase: str, step: int | None
):
    (tmp_path / "status.json").write_bytes(text.encode("latin-1"))
    found = vitals(tmp_path)
    assert (found.phase, found.step, bool(found.state)) == (phase, step, bool(phase))


def test_stopped_process_is_frozen_after_a_while_and_a_continued_one_is_not():
    process = subprocess.Popen(["sleep", "60"])
    try:
        found = Vitals("no status", process.pid, 1000.0)
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: found.stopped)
        found.look(1000.0)
        found.look(1004.0)
        assert not found.frozen(1004.0, LIMITS, reports=False)
        assert found.frozen(1005.0, LIMITS, reports=False) == "stopped for 5 s"
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: not found.stopped)
        found.look(1006.0)
        assert not found.frozen(1006.0, LIMITS, reports=False)
    finally:
        process.kill()
        process.wait()
