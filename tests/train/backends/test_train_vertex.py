"""Runs `--backend vertex` with Google's clients against a Vertex AI of this machine."""

import itertools
import json
import os
import signal

import pytest
from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1
from train_vertex import trainings

from components.train.__main__ import main
from tests.errors import user_error

STOCKOUT = (0, "Resources are insufficient in region: us-central1. Try a different region.")
FAILED = (9, "The replica workerpool1-0 exited with a non-zero status of 7.")
DONE = (0, "", 9, 1800)


@pytest.fixture
def training(vertex, bucket, tmp_path, monkeypatch):
    with trainings(vertex, bucket, tmp_path, monkeypatch) as training:
        training.endings = [DONE]
        yield training


def failing(training, error, number=1, is_made=False):
    """Answers the submission with this number with an error, after the job was made or before."""
    create, numbers = training.vertex.custom_jobs.create, itertools.count(1)

    def answer(request):
        is_due = next(numbers) == number
        job = create(request) if is_made or not is_due else None
        if is_due:
            raise error
        return job

    training.vertex.route("POST", "{parent}/customJobs", answer)


def once(number):
    """Sends this process a signal the first time; that time and the next few the job goes on."""
    numbers = itertools.count()

    def send():
        count = next(numbers)
        if count == 0:
            os.kill(os.getpid(), number)
        if count < 4:
            raise exceptions.ServiceUnavailable("later")

    return send


def endings(training):
    return [attempt.get("ending") for attempt in training.record()]


def test_missing_machines_or_quota_changes_machines(training, capfd):
    failing(training, exceptions.ResourceExhausted("quota metrics exceed quota limits: n1_cpus"))
    training.endings = [STOCKOUT, DONE]
    assert training() == 0
    specs = [job["jobSpec"]["workerPoolSpecs"] for job in training.jobs()]
    assert [[pool["machineSpec"]["machineType"] for pool in pools] for pools in specs] == [
        ["n2-standard-4", "n2-standard-8"],
        ["n2-standard-4", "e2-standard-8"],
    ]
    assert endings(training) == ["stockout", "stockout", "succeeded"]
    assert training.record()[0]["machine_hours"] == 0
    printed = capfd.readouterr().out
    assert printed.count("worker/0 | worker-0 of 2\n") == 15
    assert "launcher | done after 1800.0 s, at step 9" in printed


def test_failure_shows_replica_and_last_lines(training, capfd):
    training.endings = [FAILED]
    assert training() == 7
    shown = capfd.readouterr().out.partition("worker/0 failed first: ")[2].splitlines()
    assert FAILED[1] in shown[0] and "/training/1?" in shown[0]
    assert len(shown) == 11 and shown[-1] == "launcher |   worker-0 of 1"


def test_limits_are_shared_by_commands(training):
    training.endings = [(*FAILED, 3, 3240)]
    training.before = once(signal.SIGHUP)
    limit = ("--max-machine-hours", "3")
    for code in (129, 7):
        assert training(*limit, "--max-restarts", "0") == code
    with user_error(r"no restart after errors is left .*; allow more"):
        training(*limit, "--max-restarts", "0")
    training.endings = [(*FAILED, 6, 360)]
    assert training(*limit) == 124
    timeouts = [job["jobSpec"]["scheduling"]["timeout"] for job in training.jobs()]
    assert timeouts == ["3600s", "360s"]
    with user_error(r"are used up: 3.00 of 3; .*; allow more"):
        training(*limit)
    assert len(training.jobs()) == 2


@pytest.mark.parametrize("step", [None, 9, 8])
def test_finished_job_is_not_submitted_again(training, step):
    training.endings = [DONE, DONE]
    assert training() == 0
    if step:
        done = {"epochs": 1.0, "loss": 0.5, "validation": {}, "metrics": {}, "seconds": 1}
        done |= {"step": step, "examples_per_s": None}
        (training.files / "DONE.json").write_text(json.dumps(done))
    assert training() == 0
    assert len(training.jobs()) == (2 if step == 8 else 1)


@pytest.mark.parametrize(
    ("error", "is_made"),
    [
        (exceptions.ServiceUnavailable("busy"), False),
        (exceptions.ServiceUnavailable("busy"), True),
        (exceptions.ResourceExhausted("Quota exceeded for limit 'X requests per minute'"), False),
    ],
)
def test_busy_service_delays_another_attempt(training, error, is_made):
    failing(training, error, 2, is_made)
    training.endings = [(*FAILED, 3), DONE]
    assert training() == 0
    assert endings(training) == ["failed", "succeeded"]
    assert len(training.jobs()) == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_cancels_job(training, number, code):
    training.before = once(number)
    assert training() == code
    assert endings(training) == ["cancelled"]


def test_job_done_despite_signal_succeeds(training):
    training.before = lambda: os.kill(os.getpid(), signal.SIGTERM)
    assert training() == 0
    assert endings(training) == ["succeeded"]


@pytest.mark.parametrize(("how", "code"), [("succeeded", 0), ("cancelled", 143)])
def test_next_command_follows_left_job(training, capfd, how, code):
    """Leaves the job when the terminal is closed; commands without its region find it."""
    training.vertex.parent = f"projects/{training.vertex.project}/locations/europe-west4"
    training.before = once(signal.SIGHUP)
    assert training("--region", "europe-west4") == 129
    assert "the job goes on" in capfd.readouterr().out and endings(training) == [None]
    flags = ["gs://demo/job", "--backend", "vertex", "--project", training.vertex.project]
    if code:
        assert main(["--stop", *flags]) == 0
    assert training("--region", "us-central1") == code
    assert len(training.jobs()) == 1 and endings(training) == [how]
    assert main(["--status", *flags]) == 0
    assert f"\n{'stopped' if code else 'done'}, training-" in capfd.readouterr().out


def test_job_with_lost_answer_is_followed(training):
    failing(training, exceptions.ServiceUnavailable("the answer is lost"), is_made=True)
    with pytest.raises(ConnectionError, match="the answer is lost"):
        training()
    [job] = training.vertex.custom_jobs.items.values()
    theirs = v1.CustomJob(display_name=job.display_name)
    training.vertex.custom_jobs.items = {"theirs": theirs, job.name: job}
    assert training() == 0
    assert len(training.jobs()) == 2 and endings(training) == ["succeeded"]


def test_second_command_for_job_is_refused(training):
    training.before = lambda: (training.files / "attempts.json").write_text("[]")
    training.endings = [STOCKOUT, DONE]
    with user_error("another command submits jobs for it"):
        training()
    assert len(training.jobs()) == 1
