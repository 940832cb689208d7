"""Evaluation by replicas that step together: real jobs."""

import json
import shutil

import pytest
from trainer_jobs import Job

pytestmark = pytest.mark.cluster
FLAGS = ["--train-steps", 20, "--batch-size", 30, "--deterministic"]
TOGETHER = {
    "mirrored": (["chief"], ["--strategy", "mirrored"]),
    "three_workers": (["chief", "worker", "worker"], []),
}


@pytest.fixture(scope="module")
def finished(digits, tmp_path_factory) -> Job:
    job = Job(digits, tmp_path_factory.mktemp("validation") / "one")
    job.run("chief", flags=[*FLAGS, "--eval-batch-size", 16])
    return job


def scored(job: Job) -> dict:
    return json.loads((job.directory / "validation.json").read_text())["latest"]


@pytest.mark.parametrize(
    ("how", "batch_size"), [("mirrored", 16), ("three_workers", 16), ("three_workers", 100)]
)
def test_a_state_has_the_same_score_to_the_last_digit_whoever_evaluates_it(
    make, finished, how, batch_size
):
    """A split that does not divide, and one with fewer batches than replicas; nothing is trained in between."""
    roles, flags = TOGETHER[how]
    job = make()
    shutil.copytree(finished.directory, job.directory)
    for name in ("DONE.json", "validation.json"):
        (job.directory / name).unlink()
    job.run(*roles, flags=[*FLAGS, *flags, "--eval-batch-size", batch_size])
    one = scored(finished)
    assert scored(job) == (one if batch_size == 16 else pytest.approx(one, rel=1e-6))


def test_a_worker_told_to_stop_while_all_evaluate_ends_the_evaluation_for_all(job):
    flags = [
        "--model",
        "own_models:slow",
        "--train-steps",
        20,
        "--eval-every-steps",
        10,
        "--eval-batch-size",
        4,
    ]
    job.start("chief", "worker", flags=flags)
    job.until(lambda: job.status("worker-0")["phase"] == "evaluating")
    assert job.status("worker-0")["step"] == 10
    job.terminate("worker-0")
    assert job.wait() == {"chief-0": 143, "worker-0": 143}, job.output()
    events = [event["event"] for event in job.events()]
    assert "preempted" in events and "evaluation" not in events
    job.run("chief", "worker", flags=[*flags, "--eval-batch-size", 500])
    assert [e["step"] for e in job.events() if e["event"] == "evaluation"][-1] == 20
