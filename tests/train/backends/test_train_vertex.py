"""Runs `--backend vertex` with Google's clients against a local Vertex AI, store and log whose jobs follow a script."""

import itertools
import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1
from train_vertex import Training, trainings

from common.errors import UserError

STOCKOUT = (0, "Resources are insufficient in region: us-central1. Try a different region.")
FAILED = (
    9,
    "The replica workerpool1-0 exited with a non-zero status of 7. Termination reason: Error.",
)


@pytest.fixture
def training(vertex, bucket, tmp_path, monkeypatch) -> Iterator[Training]:
    with trainings(vertex, bucket, tmp_path, monkeypatch) as training:
        yield training


def failing(training: Training, error: Exception, number: int = 1, is_made: bool = False) -> None:
    """Answers the submission with this number with an error, after the job was made or before."""
    create, numbers = training.vertex.custom_jobs.create, itertools.count(1)

    def answer(request: Any, parent: str) -> v1.CustomJob:
        is_due = next(numbers) == number
        if is_due and not is_made:
            raise error
        job = create(request, parent)
        if is_due:
            raise error
        return job

    training.vertex.route("POST", "{parent}/customJobs", answer)


def endings(training: Training) -> list[str]:
    return [line.get("ending") for line in training.record()]


def test_stockout_takes_next_machines(training, capfd):
    training.endings = [STOCKOUT, STOCKOUT, (0, "", 9, 1800)]
    assert training() == 0
    jobs = training.jobs()
    machines = [
        [p["machineSpec"]["machineType"] for p in job["jobSpec"]["workerPoolSpecs"]] for job in jobs
    ]
    assert machines == [
        ["n1-standard-4", "n1-standard-8"],
        ["n2-standard-4", "n2-standard-8"],
        ["n2-standard-4", "e2-standard-8"],
    ]
    assert {job["jobSpec"]["baseOutputDirectory"]["outputUriPrefix"] for job in jobs} == {
        "gs://demo/job"
    }
    assert len({job["displayName"] for job in jobs}) == 3
    assert endings(training) == ["stockout", "stockout", "succeeded"]
    printed = capfd.readouterr().out
    assert (
        printed.count("worker/0 | worker-0 of 3\n") == 15 and "chief/0 | chief-0 of 3\n" in printed
    )
    assert "launcher | done after 1800.0 s, at step 9" in printed


def test_missing_quota_takes_next_machines(training):
    failing(training, exceptions.ResourceExhausted("quota metrics exceed quota limits: n1_cpus"))
    training.endings = [(0, "", 9)]
    assert training() == 0
    assert endings(training) == ["stockout", "succeeded"]
    line = training.record()[0]
    assert line["error"].startswith("Vertex AI: ") and line["machine_hours"] == 0


def test_failure_shows_replica_and_last_lines(training, capfd):
    training.endings = [FAILED]
    assert training() == 7
    last = capfd.readouterr().out.partition("worker/0 failed first: ")[2].splitlines()
    assert (
        "non-zero status of 7" in last[0]
        and "came no further" in last[0]
        and "/training/1?" in last[0]
    )
    assert last[-1] == "launcher |   worker-0 of 1" and len(last) == 11


def test_limits_are_shared_by_commands(training):
    training.endings = [(*FAILED, 3, 3240)]
    training.before = _once(signal.SIGHUP)
    for code in (129, 7):
        assert training("--max-machine-hours", "3", "--max-restarts", "0") == code
    with pytest.raises(
        UserError, match=r"no restart after errors is left \(max_restarts: 0\); .*; allow more"
    ):
        training("--max-machine-hours", "3", "--max-restarts", "0")
    training.endings = [(*FAILED, 6, 360)]
    assert training("--max-machine-hours", "3") == 124
    assert [job["jobSpec"]["scheduling"].get("timeout") for job in training.jobs()] == [
        "3600s",
        "360s",
    ]
    with pytest.raises(
        UserError, match=r"\(--max-machine-hours\) are used up: 3.00 of 3; .*; allow more"
    ):
        training("--max-machine-hours", "3")
    assert len(training.jobs()) == 2


@pytest.mark.parametrize("done", [None, {"step": 9, "epochs": 1.0}, {"step": 8, "epochs": 1.0}])
def test_finished_job_is_not_submitted_again(training, capfd, done):
    training.endings = [(0, "", 9), (0, "", 9)]
    assert training() == 0
    if done:
        more = {"loss": 0.5, "validation": {}, "metrics": {}, "examples_per_s": None}
        (training.files / "DONE.json").write_text(json.dumps({**done, **more, "seconds": 1}))
    assert training() == 0
    is_longer = bool(done) and done["step"] < 9  # Than what was done.
    assert len(training.jobs()) == 1 + is_longer
    assert (
        "launcher | already done after 0.0 s, at step 9" in capfd.readouterr().out
    ) is not is_longer


@pytest.mark.parametrize("is_made", [False, True])
def test_busy_service_delays_another_attempt(training, is_made):
    failing(training, exceptions.ServiceUnavailable("busy"), 2, is_made)
    training.endings = [(*FAILED, 3), (0, "", 9)]
    assert training() == 0
    assert endings(training) == ["failed", "succeeded"]
    assert len(training.jobs()) == 2


@pytest.mark.parametrize("record", ["[{", '[{"display_name": "a"}]'])
def test_damaged_record_is_kept(training, refused, record):
    (training.files / "attempts.json").write_text(record)
    assert "gs://demo/job/attempts.json cannot be used" in refused(lambda _: training())
    assert (training.files / "attempts.json").read_text() == record and not training.jobs()


def test_outage_is_waited_for(training, capfd):
    faults = [exceptions.Unauthenticated("expired")] * 3 + [
        exceptions.ServiceUnavailable("busy")
    ] * 2

    def fail() -> None:
        if faults:
            raise faults.pop()

    training.before, training.endings = fail, [(0, "", 9)]
    assert training() == 0
    printed = capfd.readouterr().out
    assert printed.count("the job goes on, and so does waiting for it") == 2
    assert printed.count("gcloud auth application-default login") == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_cancels_job(training, number: int, code: int):
    training.before, training.endings = _once(number), [(0, "", 9)]
    assert training() == code
    assert endings(training) == ["cancelled"]


def test_closed_terminal_leaves_job(training, capfd):
    training.before, training.endings = _once(signal.SIGHUP), [(0, "", 9)]
    assert training() == 129
    assert "the job goes on" in capfd.readouterr().out and endings(training) == [None]
    assert training() == 0
    assert len(training.jobs()) == 1 and endings(training) == ["succeeded"]


def test_refused_job_leaves_no_record(training):
    failing(training, exceptions.Forbidden("no"))
    with pytest.raises(UserError, match=r"Vertex AI: .*no"):
        training()
    assert not training.jobs() and training.record() == []


def test_job_with_lost_answer_is_followed(training):
    failing(training, exceptions.ServiceUnavailable("the answer is lost"), is_made=True)
    with pytest.raises(ConnectionError, match="the answer is lost"):
        training()
    training.endings = [(0, "", 9)]
    assert training() == 0
    assert len(training.jobs()) == 1 and endings(training) == ["succeeded"]


def test_foreign_job_of_same_name_stays(training):
    failing(training, exceptions.ServiceUnavailable("it was not made"))
    with pytest.raises(ConnectionError):
        training()
    foreign = v1.CustomJob(
        name=f"{training.vertex.parent}/customJobs/7", labels={"managed_by": "others"}
    )
    foreign.display_name, foreign.state = (
        training.record()[0]["display_name"],
        v1.JobState.JOB_STATE_PENDING,
    )
    training.vertex.custom_jobs.items[foreign.name] = foreign
    training.endings = [(0, "", 9)]
    assert training() == 0
    assert [line["name"] for line in training.record()] != [foreign.name]
    assert foreign.state == v1.JobState.JOB_STATE_PENDING


def test_second_command_for_job_is_refused(training):
    training.before = lambda: (training.files / "attempts.json").write_text("[]")
    training.endings = [STOCKOUT, (0, "", 9)]
    with pytest.raises(UserError, match="another command submits jobs for it"):
        training()
    assert len(training.jobs()) == 1


def _once(number: int) -> Callable[[], None]:
    """Sends this process a signal the first time; that time and the next few the job goes on."""
    numbers = itertools.count()

    def send() -> None:
        count = next(numbers)
        if count == 0:
            os.kill(os.getpid(), number)
        if count < 4:
            raise exceptions.ServiceUnavailable("later")

    return send
