import json
import pathlib

import pytest

from components.evaluate.page.attempts import Job
from components.evaluate.page.curves import curves
from components.evaluate.page.timeline import lives, lost, timeline
from components.evaluate.page.usage import usage
from components.evaluate.report import training_section

USE, MORE = {"cpu": 1.0, "memory": 5e8}, {"cpu": 4.0, "memory": 5e8}


def write(job: pathlib.Path, name: str, *events: tuple, attempt: int = 0) -> None:
    """A journal, whose events are each (time, event, step, other fields)."""
    lines = [{"event": event, "step": step, "time": 1e9 + at, **dict(*more)} for at, event, step, *more in events]
    job.mkdir(exist_ok=True)
    (job / f"journal-{name}-{attempt}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def step(at: float, step: int, seconds: float, loss: float = 1.0) -> tuple:
    return at, "step", step, {"loss": loss, "seconds": seconds, "learning_rate": 0.1}


@pytest.fixture
def killed(tmp_path) -> pathlib.Path:
    """A job of one replica that was killed after step 30, and resumed at step 20."""
    job = tmp_path / "job"
    write(
        job,
        "chief-0",
        (2, "machine", 0, {"began": 1e9}),
        (3, "start", 0),
        step(5, 10, 2, loss=9),
        step(9, 20, 4, loss=8),
        (9.5, "checkpoint", 20, {"seconds": 9.0, "waited_s": 0.5}),
        step(13, 30, 3.5, loss=77),
        (14, "usage", 30, USE),
    )
    write(
        job,
        "chief-0",
        (22, "machine", 0, {"began": 1e9 + 20}),
        (23, "resume", 20),
        step(24, 25, 1, loss=7),
        step(27, 40, 2, loss=6),
        (29, "evaluation", 40, {"loss": 5.0, "best": True, "seconds": 2.0}),
        (30, "export", 40, {"exported_step": 40}),
        (30, "done", 40),
        (31, "usage", 40, MORE),
        attempt=1,
    )
    return job


def test_steps_that_were_made_twice_count_once_and_the_later_ones(killed):
    job = Job.load(str(killed))
    assert [(e["step"], e["loss"]) for e in job.lasting("step")] == [(10, 9), (20, 8), (25, 7), (40, 6)]
    loss, rate = curves(job)
    assert "loss: training 9 at step 10, 6 at step 40; validation 5 at step 40, 5 at step 40" in loss
    assert "learning rate" in rate


def test_every_second_of_a_replica_goes_to_one_thing(killed):
    job = Job.load(str(killed))
    found = lost(lives(job))
    # Killed: 3 s until it began, 2 first steps, 4 that stayed, .5 for the checkpoint, 3.5 and 1 for nothing.
    assert found == pytest.approx(
        {"start": 6, "stayed": 6, "again": 4.5, "first": 3, "evaluation": 2, "wait": 2, "export": 1, "checkpoint": 0.5}
    )
    assert sum(found.values()) == pytest.approx(14 + 11)
    assert timeline(job)["sentence"] == "24% of the 25 seconds that 1 replica lived made steps that stayed; 1 restart."


def test_workers_that_only_serve_do_what_the_chief_has_them_do_and_an_evaluator_is_no_loss(killed):
    write(killed, "worker-0", (2, "machine", 0, {"began": 1e9}), (3, "serve", 0), (30, "usage", 0, USE))
    write(killed, "evaluator-0", (2, "machine", 0), (900, "usage", 0, USE))
    spans = lives(Job.load(str(killed)))
    served = lost({"worker-0": spans["worker-0"]})
    assert {kind: served[kind] for kind in ("stayed", "again", "first", "start")} == pytest.approx(
        {"stayed": 6, "again": 4.5, "first": 3, "start": 3}
    )
    assert sum(served.values()) == pytest.approx(30)
    assert sum(lost(spans).values()) == pytest.approx(25 + 30)


def test_a_pause_of_the_whole_job_is_not_drawn(killed, tmp_path):
    write(killed, "chief-0", (9000, "machine", 0), (9001, "resume", 40), step(9002, 50, 1), attempt=2)
    assert "1000" not in timeline(Job.load(str(killed)))["plot"]


def test_what_each_replica_used_is_told_by_its_name(killed):
    write(
        killed, "chief-0", (0, "machine", 0), (3, "usage", 10, USE), step(4, 30, 2), (5, "usage", 30, MORE), attempt=2
    )
    (killed / "job.json").write_text(json.dumps({"identity": {}, "settings": {"batch_size": 64}}))
    cores, memory, speed = usage(Job.load(str(killed)))
    assert "chief-0 at most 1.5<" in cores and "chief-0 at most 0.5<" in memory
    assert "chief-0 at most 640<" in speed  # 20 steps of 64 in 2 s


@pytest.mark.parametrize("events", [[], [(1, "machine", 0)], [(1, "machine", 0), (2, "start", 0), step(3, 1, 1)]])
def test_a_job_that_has_hardly_begun_has_a_page_too(tmp_path, events):
    write(tmp_path / "job", "chief-0", *events)
    shown = training_section(str(tmp_path / "job"))
    assert "Learning curves" not in shown and ("Time line" in shown) == bool(events)
    assert not training_section(str(tmp_path / "nothing")).strip()
