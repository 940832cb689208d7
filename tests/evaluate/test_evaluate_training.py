import json
import pathlib

import pytest

from components.evaluate.plots import learning_curves
from components.evaluate.report import section


def write(job: pathlib.Path, name: str, *events: tuple, attempt: int = 0) -> None:
    """Writes a journal, whose events are each (time, event, step, other fields)."""
    lines = [
        {"event": event, "step": step, "time": 1e9 + at, **dict(*more)}
        for at, event, step, *more in events
    ]
    job.mkdir(exist_ok=True)
    (job / f"journal-{name}-{attempt}.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )


def step(at: float, step: int, seconds: float, loss: float = 1.0) -> tuple:
    return at, "step", step, {"loss": loss, "seconds": seconds, "learning_rate": 0.1}


def test_repeated_steps_count_once(tmp_path):
    """Steps that were made again after a kill count by their newest event."""
    evaluation = 29, "evaluation", 40, {"loss": 5.0, "best": True, "seconds": 2.0}
    write(
        tmp_path,
        "chief-0",
        (2, "machine", 0),
        (3, "start", 0),
        step(5, 10, 2, 9),
        step(9, 20, 4, 8),
        step(13, 40, 3.5, 77),
    )
    again = step(24, 25, 1, 7), step(27, 40, 2, 6)
    write(tmp_path, "chief-0", (23, "resume", 20), *again, evaluation, (30, "done", 40), attempt=1)
    loss, rate = learning_curves(str(tmp_path))
    assert "training 6 at step 40; validation 5 at step 40" in loss
    assert "learning rate" in rate


@pytest.mark.parametrize(
    "events", [[], [(1, "machine", 0)], [(1, "machine", 0), (2, "start", 0), step(3, 1, 1)]]
)
def test_job_hardly_begun_has_page(tmp_path, events):
    write(tmp_path / "job", "chief-0", *events)
    assert "Learning curves" not in section({}, str(tmp_path / "job"))
    assert not section({}, str(tmp_path / "nothing")).strip()
