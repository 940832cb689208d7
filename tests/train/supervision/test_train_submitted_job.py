"""`--backend vertex` with Google's clients, and a Vertex AI, a store and a log here; what the jobs do is written down."""

import datetime
import json
import os
import pathlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1

from common.errors import UserError
from components.train.__main__ import main
from components.train.backends import vertex_logs
from components.train.supervision import submitted_job
from tests.cloud.collection import now
from tests.cloud.entries import Entries
from tests.cloud.front import Front

IMAGE = f"us-docker.pkg.dev/p/r/i@sha256:{'0' * 64}"
CLUSTER = """
strategy: multi_worker_mirrored
chief: {machine: n1-standard-4, alternatives: [{machine: n2-standard-4}]}
worker: {machine: n1-standard-8, replicas: 2, alternatives: [{machine: n2-standard-8}, {machine: e2-standard-8}]}
"""
STOCKOUT = (0, "Resources are insufficient in region: us-central1. Try a different region.")
FAILED = (9, "The replica workerpool1-0 exited with a non-zero status of 7. Termination reason: Error.")


class Training:
    """Runs the command; each of its jobs ends as `endings` says: error code and text, step, and seconds that it ran."""

    def __init__(self, vertex: Any, files: pathlib.Path, logs: pathlib.Path) -> None:
        self.files, self.logs, self.endings = files / "job", logs, []
        self.before: Callable[[], Any] = lambda: None  # is called when a job is looked at
        (self.files / "checkpoints").mkdir(parents=True)
        self.vertex, self._ran_s = vertex, 0
        vertex.route("GET", "{parent}/customJobs/{id}", self._get)

    def __call__(self, *argv: str) -> int:
        (self.files / "cluster.yaml").write_text(CLUSTER)
        words = ["--cluster", self.files / "cluster.yaml", "--image", IMAGE, "--project", self.vertex.project]
        words += [*argv, "--backend", "vertex"]
        flags = ["--data-dir", "gs://demo/d", "--job-dir", "gs://demo/job", "--train-steps", "9"]
        return main([*map(str, words), "--", *flags])

    def jobs(self) -> list[dict[str, Any]]:
        return [json.loads(v1.CustomJob.to_json(job)) for job in self.vertex.custom_jobs.items.values()]

    def record(self) -> list[dict[str, Any]]:
        return json.loads((self.files / "attempts.json").read_text())

    def _get(self, request: Any, parent: str, id: str) -> v1.CustomJob:
        job = self.vertex.custom_jobs.get(request, parent, id)
        if job.state.name == "JOB_STATE_PENDING":
            job.state = v1.JobState.JOB_STATE_RUNNING
            (self.logs / f"job-{id}").mkdir()
            for name in ("chief-0", "worker-0"):
                (self.logs / f"job-{id}" / f"{name}.log").write_text(f"hello\n{name} of {id}\n" * 15)
        elif job.start_time and not job.end_time:  # as its machines may need a moment to end
            job.end_time = job.start_time + datetime.timedelta(seconds=self._ran_s)
        elif job.state.name == "JOB_STATE_RUNNING" and self.endings:
            self.before()
            code, message, step, self._ran_s = (*self.endings.pop(0), 0, 0)[:4]
            if step:
                (self.files / "checkpoints" / f"ckpt-{step}.index").touch()
            job.start_time = now()
            job.error.code, job.error.message = code, message
            job.state = v1.JobState.JOB_STATE_FAILED if message else v1.JobState.JOB_STATE_SUCCEEDED
        return job


@pytest.fixture
def training(vertex, bucket, tmp_path, monkeypatch) -> Iterator[Training]:
    monkeypatch.setattr(submitted_job, "_POLL_S", 0.01)
    monkeypatch.setattr(submitted_job, "_LINES_S", 0.0)
    monkeypatch.setattr(submitted_job, "_ERROR_S", 0.05)
    monkeypatch.setattr("tests.cloud.objects._WRITE_S", 0.0)
    logs = tmp_path / "logs"
    logs.mkdir()
    # Whoever runs the tests in the background may have them ignore signals, which the launcher then does too.
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGHUP)}
    with Front(0, Entries(logs).answer) as front:
        monkeypatch.setattr(vertex_logs, "URL", f"http://127.0.0.1:{front.server_port}/v2/entries:list")
        yield Training(vertex, bucket, logs)
        front.shutdown()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_without_capacity_next_machines_are_taken(training, capfd):
    training.endings = [STOCKOUT, STOCKOUT, (0, "", 9, 1800)]
    assert training() == 0
    machines = [[p["machineSpec"]["machineType"] for p in job["jobSpec"]["workerPoolSpecs"]] for job in training.jobs()]
    assert machines == [
        ["n1-standard-4", "n1-standard-8"],
        ["n2-standard-4", "n2-standard-8"],
        ["n2-standard-4", "e2-standard-8"],
    ]
    assert {job["jobSpec"]["baseOutputDirectory"]["outputUriPrefix"] for job in training.jobs()} == {"gs://demo/job"}
    assert len({job["displayName"] for job in training.jobs()}) == 3
    endings = [(line["choice"], line["ending"], line["step_after"]) for line in training.record()]
    assert endings == [(0, "stockout", -1), (1, "stockout", -1), (2, "succeeded", 9)]
    printed = capfd.readouterr().out
    assert printed.count("worker/0 | worker-0 of 3\n") == 15 and "chief/0 | chief-0 of 3\n" in printed
    assert "launcher | done after 1800.0 s, at step 9" in printed


def test_without_quota_next_machines_are_taken(training):
    create = training.vertex.custom_jobs.create

    def refuse_n1(request: Any, parent: str) -> v1.CustomJob:
        if "n1-standard-4" in request.body.decode():
            raise exceptions.ResourceExhausted("quota metrics exceed quota limits: custom_model_training_cpus")
        return create(request, parent)

    training.vertex.route("POST", "{parent}/customJobs", refuse_n1)
    training.endings = [(8, "The following quota metrics exceed quota limits: n2_cpus"), (0, "", 9, 1800)]
    assert training() == 0
    lines = training.record()
    assert [(line["choice"], line["ending"]) for line in lines] == [(0, "stockout"), (1, "stockout"), (2, "succeeded")]
    assert lines[0]["error"].startswith("Vertex AI refused: ") and lines[0]["machine_hours"] == 0


def test_failure_ends_with_replica_and_its_lines(training, capfd):
    training.endings = [FAILED]
    assert training() == 7
    last = capfd.readouterr().out.partition("worker/0 failed first: ")[2].splitlines()
    assert "non-zero status of 7" in last[0] and "came no further" in last[0] and "/training/1?" in last[0]
    assert last[-1] == "launcher |   worker-0 of 1" and len(last) == 11


def test_next_command_has_what_is_left(training):
    training.endings = [(*FAILED, 3, 3240)]
    training.before = _once(lambda: os.kill(os.getpid(), signal.SIGHUP))
    for code in (129, 7):
        assert training("--max-machine-hours", "3", "--max-restarts", "0") == code
    with pytest.raises(UserError, match=r"no restart after errors is left \(max_restarts: 0\); .*; allow more"):
        training("--max-machine-hours", "3", "--max-restarts", "0")
    training.endings = [(*FAILED, 6, 360)]
    assert training("--max-machine-hours", "3") == 124
    assert [job["jobSpec"]["scheduling"].get("timeout") for job in training.jobs()] == ["3600s", "360s"]
    with pytest.raises(UserError, match=r"\(--max-machine-hours\) are used up: 3.00 of 3; .*; allow more"):
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
    assert ("launcher | already done after 0.0 s, at step 9" in capfd.readouterr().out) is not is_longer


@pytest.mark.parametrize("is_made", [False, True])
def test_failing_service_delays_another_attempt(training, is_made):
    create, calls = training.vertex.custom_jobs.create, []

    def busy(*asked: Any, **more: Any) -> v1.CustomJob:
        calls.append(asked)
        is_busy = len(calls) == 2
        job = None if is_busy and not is_made else create(*asked, **more)
        if is_busy:
            raise exceptions.ServiceUnavailable("busy")
        return job

    training.vertex.route("POST", "{parent}/customJobs", busy)
    training.endings = [(*FAILED, 3), (0, "", 9)]
    assert training() == 0
    assert [line["ending"] for line in training.record()] == ["failed", "succeeded"]
    assert len(training.jobs()) == 2


@pytest.mark.parametrize("record", ["[{", "{}", "[1]", '[{"display_name": "a", "ending": "failed"}]'])
def test_damaged_record_is_kept(training, refused, record):
    (training.files / "attempts.json").write_text(record)
    assert "gs://demo/job/attempts.json cannot be used" in refused(lambda _: training())
    assert (training.files / "attempts.json").read_text() == record and not training.jobs()


def test_failing_service_is_waited_for(training, capfd):
    faults = [exceptions.Unauthenticated("expired")] * 3 + [exceptions.ServiceUnavailable("busy")] * 2

    def fail() -> None:
        if faults:
            raise faults.pop()

    training.before, training.endings = fail, [(0, "", 9)]
    assert training() == 0
    printed = capfd.readouterr().out
    assert (
        printed.count("Google Cloud cannot be asked") == 2
        and printed.count("gcloud auth application-default login") == 1
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_has_job_save_and_end(training, capfd, number: int, code: int):
    training.before, training.endings = _once(lambda: os.kill(os.getpid(), number)), [(0, "", 9)]
    assert training() == code
    assert [line["ending"] for line in training.record()] == ["cancelled"]


def test_closed_terminal_leaves_job(training, capfd):
    training.before, training.endings = _once(lambda: os.kill(os.getpid(), signal.SIGHUP)), [(0, "", 9)]
    assert training() == 129
    assert "the job goes on" in capfd.readouterr().out and "ending" not in training.record()[0]
    assert training() == 0
    assert len(training.jobs()) == 1 and training.record()[0]["ending"] == "succeeded"


def test_refused_job_leaves_nothing(training):
    training.vertex.route(
        "POST", "{parent}/customJobs", lambda *_, **__: (_ for _ in ()).throw(exceptions.Forbidden("no"))
    )
    with pytest.raises(UserError, match=r"Vertex AI refused: .*no"):
        training()
    assert not training.jobs() and not (training.files / "attempts.json").exists()


def test_job_with_lost_answer_is_found(training):
    create = training.vertex.custom_jobs.create

    def lost(*asked: Any, **more: Any) -> None:
        create(*asked, **more)
        raise exceptions.ServiceUnavailable("the answer is lost")

    training.vertex.route("POST", "{parent}/customJobs", lost)
    with pytest.raises(ConnectionError, match="does not answer"):
        training()
    training.endings = [(0, "", 9)]
    assert training() == 0
    assert len(training.jobs()) == 1 and [line["ending"] for line in training.record()] == ["succeeded"]


def test_foreign_job_of_same_name_stays(training):
    def lost(*_: Any, **__: Any) -> None:
        raise exceptions.ServiceUnavailable("it was not made")

    training.vertex.route("POST", "{parent}/customJobs", lost)
    with pytest.raises(ConnectionError):
        training()
    foreign = v1.CustomJob(name=f"{training.vertex.parent}/customJobs/7", labels={"managed_by": "others"})
    foreign.display_name, foreign.state = training.record()[0]["display_name"], v1.JobState.JOB_STATE_PENDING
    training.vertex.custom_jobs.items[foreign.name] = foreign
    training.vertex.route("POST", "{parent}/customJobs", training.vertex.custom_jobs.create)
    training.endings = [(0, "", 9)]
    assert training() == 0
    assert [line["name"] for line in training.record()] != [foreign.name]
    assert foreign.state == v1.JobState.JOB_STATE_PENDING


def test_of_two_commands_one_goes_on(training):
    def other() -> None:
        (training.files / "attempts.json").write_text(json.dumps([]))

    training.before, training.endings = other, [STOCKOUT, (0, "", 9)]
    with pytest.raises(UserError, match="another command submits jobs for it"):
        training()
    assert len(training.jobs()) == 1


def _once(call: Callable[[], Any]) -> Callable[[], None]:
    """Makes a call the first time; that time and the next few the job goes on."""
    calls = []

    def made() -> None:
        calls.append(0)
        if len(calls) == 1:
            call()
        if len(calls) < 5:
            raise exceptions.ServiceUnavailable("later")

    return made
