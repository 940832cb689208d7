"""Runs that are sent, and gone on with, by Google's clients to a Vertex AI and a bucket on this machine."""

import dataclasses
import datetime
import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import requests
from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.errors import UserError
from common.google_cloud import MANAGED_BY
from components.train.backends.attempts import Again, JobStore
from pipelines import submit
from pipelines.cloud_options import KEYS
from pipelines.vertex import client, sending, watch
from pipelines.vertex.submission import Submission, prepare
from tests.cloud.collection import now

RUN = "training-1"
IMAGE = f"us-docker.pkg.dev/p/r/i@sha256:{'a' * 64}"
PLACE = ["--project", "demo-project", "--bucket", "gs://demo"]
FAILED = v1.JobState.JOB_STATE_FAILED
State = v1.PipelineState


class Run:
    """A run of one machine in `gs://demo`, and its jobs on Vertex AI."""

    def __init__(self, vertex: Any, files: pathlib.Path, cluster: pathlib.Path) -> None:
        self.vertex, self.files = vertex, files / "runs" / RUN
        cluster.write_text("{strategy: one_device, chief: {machine: n1-standard-4}}")
        flags = [
            *PLACE,
            "--image",
            IMAGE,
            "--cluster",
            str(cluster),
            "--set",
            "max_machine_hours=3",
        ]
        new = prepare(KEYS.read(submit._parser().parse_args(flags)))
        values = json.loads(json.dumps(new.values).replace(new.run, RUN))
        self.submission = dataclasses.replace(new, run=RUN, values=values)
        self.submission.save()
        (self.files / "job" / "checkpoints").mkdir(parents=True)
        (self.files / "job" / "checkpoints" / "ckpt-5.index").write_text("5")

    def train(self, hours: float, state: v1.JobState = FAILED, **error: Any) -> v1.CustomJob:
        """Adds a training job that has ended."""
        number = len(self.vertex.custom_jobs.items) + 1
        job = v1.CustomJob(
            name=f"{self.vertex.parent}/customJobs/{number}",
            display_name=RUN,
            state=state,
            error=error,
        )
        job.labels = dict([MANAGED_BY])
        job.create_time = job.start_time = now()
        job.end_time = job.start_time + datetime.timedelta(hours=hours)
        self.vertex.custom_jobs.items[job.name] = job
        return job

    def pipeline(self, job_id: str, state: v1.PipelineState) -> v1.PipelineJob:
        labels = {**dict([MANAGED_BY]), "run": RUN}
        job = v1.PipelineJob(
            name=f"{self.vertex.parent}/pipelineJobs/{job_id}", state=state, labels=labels
        )
        job.create_time = now()
        self.vertex.pipeline_jobs.items[job.name] = job
        return job

    def record(self, *lines: dict[str, Any]) -> None:
        known = {
            "submitted": now().isoformat(),
            "choice": 0,
            "machines": {},
            "replicas": 1,
            "step_before": -1,
        }
        lines = [{"display_name": RUN, **known, **line} for line in lines]
        (self.files / "job" / "attempts.json").write_text(json.dumps(lines))

    def objects(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.files.rglob("*") if path.is_file()}

    def resume(self) -> int:
        submission = Submission.load("gs://demo", RUN)
        store = JobStore(submission.values["job_dir"])
        return sending.run(submission, store, sending.recorded(submission, store), wait=False)

    def sent(self) -> list[str]:
        return [name.rpartition("/")[2] for name in self.vertex.pipeline_jobs.items]


@pytest.fixture
def run(vertex, bucket, tmp_path, monkeypatch) -> Run:
    monkeypatch.setattr(watch, "POLL_S", 0.0)
    monkeypatch.setattr(client, "connect", lambda *_: None)  # The fixture has.
    monkeypatch.setattr("tests.cloud.objects._WRITE_S", 0.0)
    run = Run(vertex, bucket, tmp_path / "cluster.yaml")

    def request(
        submission: Submission, job_id: str, order: Again
    ) -> dict[str, Any]:  # Without a compilation.
        job = {"displayName": RUN, "labels": submission.settings.all_labels(RUN)}
        shown = {
            "timeout": f"{order.timeout_s}s",
            "strategy": submission.cluster.scheduling.strategy,
        }
        job["runtimeConfig"] = {"parameterValues": shown}
        return {"parent": vertex.parent, "pipelineJobId": job_id, "pipelineJob": job}

    monkeypatch.setattr(Submission, "request", request)
    return run


ENDED = {"ending": "failed", "step_after": 5, "seconds": 60}


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.sampled_from([[], [ENDED], [{}], [ENDED, {"display_name": f"{RUN}-2"}]]),
    is_visible=st.booleans(),
    answer=st.sampled_from([403, 409, 503]),
    is_made=st.booleans(),
    aborted=st.none() | st.integers(0, 16),
)
def test_unsent_resume_changes_nothing(run, lines, is_visible, answer, is_made, aborted):
    """Whatever is known of a run, and wherever its resume is refused or ends, its objects and the record of its attempts stay."""
    run.vertex.pipeline_jobs.items.clear()
    run.record(*lines)
    if not lines:
        (run.files / "job" / "attempts.json").unlink()
    if is_visible:
        run.pipeline(RUN, State.PIPELINE_STATE_FAILED)
    create, calls, before = run.vertex.pipeline_jobs.create, [], run.objects()

    def refuse(*asked: Any, **more: Any) -> None:
        if is_made and answer == 503:
            create(*asked, **more)
        raise exceptions.from_http_status(answer, "no")

    def send(
        adapter: Any,
        *asked: Any,
        _send: Callable[..., Any] = requests.adapters.HTTPAdapter.send,
        **more: Any,
    ) -> Any:
        calls.append(asked)
        if len(calls) - 1 == aborted:
            raise KeyboardInterrupt
        return _send(adapter, *asked, **more)

    run.vertex.route("POST", "{parent}/pipelineJobs", refuse)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests.adapters.HTTPAdapter, "send", send)
        with pytest.raises((UserError, ConnectionError, KeyboardInterrupt)) as ended:
            run.resume()
    after = run.objects()
    record = str(run.files / "job" / "attempts.json")
    old, new = (json.loads(files.pop(record, b"[]")) for files in (before, after))
    known = [line for line in old if "ending" in line]
    same = [{key: line[key] for key in before} for line, before in zip(new, known, strict=False)]
    may_have_begun = not issubclass(ended.type, UserError)
    assert same == known and len(new) <= len(old) + may_have_begun
    assert after == before


@pytest.mark.parametrize("is_gone", [False, True])
def test_resume_has_what_is_left(run, refused, capsys, is_gone):
    run.record({})
    run.train(2.7, code=9, message="The replica workerpool0-0 exited with a non-zero status of 1.")
    if not is_gone:
        run.pipeline(RUN, State.PIPELINE_STATE_FAILED)
    assert run.resume() == 0
    sent = list(run.vertex.pipeline_jobs.items.values())[-1]
    assert (
        sent.runtime_config.parameter_values["timeout"] == "1080s" and run.sent()[-1] == f"{RUN}-2"
    )
    run.train(0.3, code=9, message="The replica workerpool0-0 exited with a non-zero status of 1.")
    sent.state = State.PIPELINE_STATE_FAILED
    line = refused(submit.main, *PLACE, "--resume", RUN)
    assert "(--max-machine-hours) are used up: 3.00 of 3; nothing is submitted; allow more" in line
    for flags in (
        ["--set", "timeout=1h"],
        ["--set", "max_machine_hours=4", "--set", "max_restarts=0"],
    ):
        assert "allow more" in refused(submit.main, *PLACE, "--resume", RUN, *flags)
    more = ["--set", "max_machine_hours=4", "--set", "scheduling=SPOT", "--dry-run"]
    assert submit.main([*PLACE, "--resume", RUN, *more]) == 0
    assert '"strategy": "SPOT"' in capsys.readouterr().out
    assert len(run.sent()) == (1 if is_gone else 2)


def test_finished_run_is_not_sent_again(run, capsys):
    run.record({})
    run.pipeline(RUN, State.PIPELINE_STATE_SUCCEEDED)
    decision = {"verdict": "reject", "why": "accuracy 0.5 is too low"}
    (run.files / "job" / "evaluation.json").write_text(
        json.dumps({"decision": decision, "metrics": {"accuracy": 0.5}})
    )
    assert submit.main([*PLACE, "--resume", RUN, "--set", "max_restarts=7"]) == 0
    assert f"{RUN} has ended well, and nothing is sent:\naccuracy 0.5\n" in capsys.readouterr().out
    assert run.sent() == [RUN]


def test_training_without_pipeline_job_blocks(run):
    run.record({})
    run.train(1, v1.JobState.JOB_STATE_RUNNING).end_time = None
    with pytest.raises(
        UserError, match=r"training job 1 of training-1 is still going on; .*custom-jobs cancel 1 "
    ):
        run.resume()
