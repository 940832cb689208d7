import json

import pytest

from components.evaluate.plots import learning_curves
from components.evaluate.report import section


def write(job, attempt, *events):
    """Writes the chief's journal, whose events are each (event, step, fields)."""
    lines = [
        json.dumps({"event": event, "step": step, "time": 1e9 + attempt, **dict(*more)}) + "\n"
        for event, step, *more in events
    ]
    job.mkdir(exist_ok=True)
    (job / f"journal-chief-0-{attempt}.jsonl").write_text("".join(lines))


def step(step, loss):
    return "step", step, {"loss": loss, "seconds": 2.0, "learning_rate": 0.1}


def test_repeated_steps_count_once(tmp_path):
    """Steps that were made again after a kill count by their newest event."""
    evaluation = "evaluation", 40, {"loss": 5.0, "best": True, "seconds": 2.0}
    write(tmp_path, 0, ("machine", 0), ("start", 0), step(10, 9), step(20, 8), step(40, 77))
    write(tmp_path, 1, ("resume", 20), step(25, 7), step(40, 6), evaluation, ("done", 40))
    loss, rate = learning_curves(str(tmp_path))
    assert "training 6 at step 40; validation 5 at step 40" in loss
    assert "learning rate" in rate


@pytest.mark.parametrize("events", [[], [("machine", 0)], [("start", 0), step(1, 1)]])
def test_job_hardly_begun_has_page(tmp_path, events):
    write(tmp_path, 0, *events)
    assert "Learning curves" not in section({}, str(tmp_path))
    assert not section({}, f"{tmp_path}/nothing").strip()
