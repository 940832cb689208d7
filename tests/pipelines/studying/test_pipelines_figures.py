import json
import pathlib

import pytest

from pipelines.studying.figures import WENT_TO, measured


def machine(at: float, step: int = 0) -> list[dict]:
    began = {"event": "machine", "step": 0, "time": at + 2, "began": at, "devices": "Fast 9000"}
    return [began, {"event": "resume" if step else "start", "step": step, "time": at + 3}]


def step(at: float, step: int, seconds: float, each: float = 0.0) -> dict:
    speeds = {"examples_per_s": 400.0, "replica_examples_per_s": each}
    return {"event": "step", "step": step, "time": at, "seconds": seconds, **speeds}


def job(place: pathlib.Path, strategy: str, replicas: dict[str, int], each: float) -> dict | None:
    """The figures of a job whose chief was killed at second 20 and 5 s later began again from step 20."""
    saved = {"event": "checkpoint", "step": 20, "time": 12, "seconds": 1.0, "waited_s": 0.5, "cpu_s": 0.25}
    first = [*machine(0), step(5, 10, 2), step(11, 20, 5), saved, step(20, 60, 8)]
    again = [*machine(25, 20), step(30, 30, 1), step(50, 110, 20, each), {"event": "done", "step": 110, "time": 51}]
    for attempt, events in enumerate((first, again)):
        (place / f"journal-chief-0-{attempt}.jsonl").write_text("\n".join(map(json.dumps, events)))
    (place / "evaluation").mkdir()
    contents = {
        "job.json": {"settings": {"strategy": strategy, "batch_size": 100}, "replicas": replicas},
        "evaluation/evaluation.json": {"metric": "auc", "metrics": {"auc": 0.75, "examples": 9}},
        "DONE.json": {"step": 110, "epochs": 1, "loss": 1, "validation": {}, "seconds": 26, "examples_per_s": 400.0},
    }
    for name, content in contents.items():
        (place / name).write_text(json.dumps(content))
    return measured(str(place), place)


def test_a_kill_costs_the_lost_steps_the_pause_and_starting_again_and_every_second_goes_to_something(tmp_path):
    found = job(tmp_path, "synchronous", {"chief": 1}, 400.0)
    went_to = {kind: found[f"{kind}_s"] for kind in WENT_TO}
    # Lost: steps for 8 s, then nobody for 5, then 5 to the end of the first step.
    expected = {
        "start": 5,
        "steps": 25,
        "checkpoint": 1.5,
        "restarts": 18,
        "waiting": 1.5,
        "evaluation": 0,
        "export": 0,
    }
    assert went_to == pytest.approx(expected)
    assert sum(went_to.values()) == found["time_s"] == 51
    assert found["restarts"] == 1 and found["machine_hours"] == pytest.approx(51 / 3600, abs=1e-4)
    assert found["examples_per_s"] == found["examples_per_s_of_each"] == 400
    assert (found["checkpoints"], found["checkpoint_cost_s"], found["computes_on"]) == (1, 0.75, "Fast 9000")
    assert (found["metric"], found["score"]) == ("auc", 0.75)
    (tmp_path / "evaluation" / "evaluation.json").unlink()
    assert measured(str(tmp_path), tmp_path) is None


@pytest.mark.parametrize(
    ("strategy", "replicas", "each", "train", "vital"),
    [
        ("asynchronous", {"chief": 1, "worker": 2, "ps": 1}, 400.0, 2, 2),  # a worker comes back alone
        ("synchronous", {"chief": 1, "worker": 1}, 200.0, 2, 2),
        ("synchronous", {"chief": 1}, 100.0, 4, 1),  # devices of one process
    ],
)
def test_replicas_are_those_that_train(tmp_path, strategy, replicas, each, train, vital):
    found = job(tmp_path, strategy, replicas, each)
    assert (found["replicas"], found["vital"], found["examples_per_s_of_each"]) == (train, vital, 400 / train)
