"""Runs that are sent, followed and gone on with, on a Vertex AI and a bucket of this machine."""

import dataclasses
import datetime
import json

import pytest
import requests
from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from common.google_cloud import MANAGED_BY
from components.train.backends.attempts import JobStore
from pipelines import submit
from pipelines.cloud_options import KEYS
from pipelines.vertex import client, sending, watch
from pipelines.vertex.submission import Submission, prepare
from tests.cloud.collection import now
from tests.errors import user_error

RUN = "training-1"
PLACE = ["--project", "demo-project", "--bucket", "gs://demo"]
FAILED = "PIPELINE_STATE_FAILED"


class Run:
    """A run of one machine in `gs://demo`, and its jobs on Vertex AI."""

    def __init__(self, vertex, files, cluster):
        self.vertex, self.files = vertex, files / "runs" / RUN
        cluster.write_text("{strategy: one_device, chief: {machine: n1-standard-4}}")
        image = f"us-docker.pkg.dev/p/r/i@sha256:{'a' * 64}"
        flags = ["--image", image, "--cluster", str(cluster), "--set", "max_machine_hours=3"]
        new = prepare(KEYS.read(submit._parser().parse_args([*PLACE, *flags])))
        values = json.loads(json.dumps(new.values).replace(new.run, RUN))
        dataclasses.replace(new, run=RUN, values=values).save()
        (self.files / "job" / "checkpoints").mkdir(parents=True)
        (self.files / "job" / "checkpoints" / "ckpt-5.index").write_text("5")
        self.attempts = self.files / "job" / "attempts.json"
        theirs = v1.CustomJob(name="0", display_name=RUN, create_time=now())
        vertex.custom_jobs.items[theirs.name] = theirs

    def train(self, hours, state="JOB_STATE_FAILED"):
        """Adds a training job that has ended."""
        started = now()
        message = "The replica workerpool0-0 exited with a non-zero status of 1."
        job = v1.CustomJob(
            name=f"{self.vertex.parent}/customJobs/{len(self.vertex.custom_jobs.items) + 1}",
            display_name=RUN,
            state=state,
            error={"code": 9, "message": message},
            labels=dict([MANAGED_BY]),
            create_time=started,
            start_time=started,
            end_time=started + datetime.timedelta(hours=hours),
        )
        self.vertex.custom_jobs.items[job.name] = job
        return job

    def pipeline(self, state, /, **step):
        """Adds the pipeline job of the first attempt, with what is known of its training."""
        name = f"{self.vertex.parent}/pipelineJobs/{RUN}"
        labels = {**dict([MANAGED_BY]), "run": RUN}
        job = v1.PipelineJob(name=name, state=state, labels=labels, create_time=now())
        job.job_detail.task_details = [{"task_name": "custom-training-job", **step}]
        self.vertex.pipeline_jobs.items[name] = job

    def record(self, *attempts):
        known = {"submitted": now().isoformat(), "choice": 0, "machines": {}, "replicas": 1}
        known |= {"display_name": RUN, "step_before": -1}
        self.attempts.write_text(json.dumps([known | attempt for attempt in attempts]))

    def objects(self):
        return {path: path.read_bytes() for path in self.files.rglob("*") if path.is_file()}

    def resume(self, *, wait=False):
        submission = Submission.load("gs://demo", RUN)
        store = JobStore(submission.values["job_dir"])
        return sending.run(submission, store, sending.recorded(submission, store), wait=wait)

    def sent(self):
        return [name.rpartition("/")[2] for name in self.vertex.pipeline_jobs.items]


@pytest.fixture
def run(vertex, bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "POLL_S", 0.0)
    monkeypatch.setattr(client, "connect", lambda *_: None)  # The fixture has.
    return Run(vertex, bucket, tmp_path / "cluster.yaml")


ENDED = {"ending": "failed", "step_after": 5, "seconds": 60}


@settings(max_examples=20)
@given(
    attempts=st.sampled_from([[], [ENDED], [{}], [ENDED, {"display_name": f"{RUN}-2"}]]),
    is_visible=st.booleans(),
    answer=st.sampled_from([403, 409, 503]),
    is_made=st.booleans(),
    aborted=st.none() | st.integers(0, 16),
)
def test_unsent_resume_changes_nothing(run, attempts, is_visible, answer, is_made, aborted):
    """Whatever is known of a run, and wherever its resume ends, its objects and attempts stay."""
    run.vertex.pipeline_jobs.items.clear()
    run.record(*attempts)
    if not attempts:
        run.attempts.unlink()
    if is_visible:
        run.pipeline(FAILED)
    create, send, before = run.vertex.pipeline_jobs.create, requests.Session.send, run.objects()
    calls = []

    def refuse(request):
        if is_made and answer == 503:
            create(request)
        raise exceptions.from_http_status(answer, "no")

    def count(*request, **options):
        calls.append(request)
        if len(calls) - 1 == aborted:
            raise KeyboardInterrupt
        return send(*request, **options)

    run.vertex.route("POST", "{parent}/pipelineJobs", refuse)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests.Session, "send", count)
        with pytest.raises((UserError, ConnectionError, KeyboardInterrupt)) as ended:
            run.resume()
    after = run.objects()
    old, new = (json.loads(files.pop(run.attempts, "[]")) for files in (before, after))
    assert after == before
    known = [attempt for attempt in old if "ending" in attempt]
    assert all(now.items() >= then.items() for now, then in zip(new, known, strict=False))
    may_have_begun = not issubclass(ended.type, UserError)
    assert len(known) <= len(new) <= len(old) + may_have_begun


@pytest.mark.parametrize("is_gone", [False, True])
def test_resume_has_what_is_left(run, refused, capsys, is_gone):
    run.record({})
    run.train(2.7)
    if not is_gone:
        run.pipeline(FAILED)
    assert run.resume() == 0
    sent = list(run.vertex.pipeline_jobs.items.values())[-1]
    assert "1080s" in str(sent)
    assert run.sent()[-1] == f"{RUN}-2"
    run.train(0.3)
    sent.state = FAILED
    more = ["--set", "max_machine_hours=4"]
    for flags, message in (
        ([], "(--max-machine-hours) are used up: 3.00 of 3; nothing is submitted; allow more"),
        (["--set", "timeout=1h"], "allow more"),
        ([*more, "--set", "max_restarts=0"], "allow more"),
    ):
        assert message in refused(submit.main, *PLACE, "--resume", RUN, *flags)
    flags = [*more, "--set", "scheduling=SPOT", "--dry-run"]
    assert submit.main([*PLACE, "--resume", RUN, *flags]) == 0
    assert '"constant": "SPOT"' in capsys.readouterr().out
    assert len(run.sent()) == 2 - is_gone


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("EXPIRED", "training is given up: no capacity for any of its 1 choices of machines"),
        ("CANCELLED", f"{RUN}: cancelled"),
    ],
)
def test_expired_training_is_no_cancellation(run, capsys, state, message):
    """The run of either has been cancelled, but one by `follow`, as it would never have ended."""
    create = run.vertex.pipeline_jobs.create

    def cancelled(request):
        job = create(request)
        run.train(0, f"JOB_STATE_{state}")
        job.state = "PIPELINE_STATE_CANCELLED"
        return job

    run.vertex.route("POST", "{parent}/pipelineJobs", cancelled)
    assert run.resume(wait=True) == 1
    assert capsys.readouterr().err.splitlines()[-1] == message


def test_training_without_pipeline_job_blocks(run):
    run.record({})
    run.train(1, "JOB_STATE_RUNNING").end_time = None
    with user_error(r"job 2 of training-1 is still .*custom-jobs cancel 2 "):
        run.resume()


@pytest.mark.parametrize(
    ("task", "kind", "state"),
    [
        ("custom-training-job", v1.CustomJob, "EXPIRED"),
        ("model-batch-predict", v1.BatchPredictionJob, "PARTIALLY_SUCCEEDED"),
    ],
)
def test_state_unknown_to_launcher_cancels(run, monkeypatch, capsys, task, kind, state):
    """A job that was there before the run is one of an earlier attempt."""
    jobs = run.vertex.custom_jobs if kind is v1.CustomJob else run.vertex.batches
    naps = []

    def nap(_):
        naps.append(None)
        if len(naps) != 2:
            about = {"display_name": RUN, "labels": dict([MANAGED_BY]), "create_time": now()}
            jobs.items["1"] = kind(name="1", state=f"JOB_STATE_{state}", **about)

    nap(0)
    run.pipeline("PIPELINE_STATE_RUNNING", task_name=task, state="RUNNING")
    (run.files / "job" / "journal-chief-0-0.jsonl").write_text('{"event": "step", "step": 7}')
    monkeypatch.setattr(watch.time, "sleep", nap)
    name = f"{run.vertex.parent}/pipelineJobs/{RUN}"
    assert watch.state_of(watch.follow(name, f"gs://demo/runs/{RUN}/job")) == "CANCELLED"
    lines = [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    step, newest = ("train", ["train: step 7"]) if kind is v1.CustomJob else (task, [])
    why = f"{step}: {state.lower()}, for which its step would wait for ever; the run is cancelled"
    assert lines == [f"{step}: running", *newest, why] and len(naps) == 4
