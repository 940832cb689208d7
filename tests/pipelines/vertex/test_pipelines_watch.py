import datetime

import pytest
from google.cloud import aiplatform_v1 as v1

from common.errors import UserError
from common.google_cloud import MANAGED_BY
from pipelines.vertex import watch
from pipelines.vertex.submission import require_bucket
from pipelines.vertex.watch import newest_step
from tests.cloud.collection import now


def test_newest_step_is_of_newest_journal(bucket):
    line = '{"event": "%s", "step": %d, "time": 1.0}\n'
    assert newest_step("gs://demo/job") == {}
    (bucket / "job").mkdir()
    (bucket / "job" / "journal-chief-0-0.jsonl").write_text(line % ("step", 5) * 3000)
    assert newest_step("gs://demo/job")["step"] == 5
    text = line % ("step", 7) + line % ("usage", 9) + '{"event": "step", "st'
    (bucket / "job" / "journal-chief-0-1.jsonl").write_text(text)
    assert newest_step("gs://demo/job")["step"] == 7


def test_step_is_shown_once(vertex, bucket, monkeypatch, capsys):
    monkeypatch.setattr(watch, "POLL_S", 0.0)
    (bucket / "job").mkdir()
    (bucket / "job" / "journal-chief-0-0.jsonl").write_text('{"event": "step", "step": 7}')
    states = iter(["RUNNING"] * 3 + ["SUCCEEDED"])

    def answer(request, parent, id):
        state = next(states)
        task = {"task_name": "custom-training-job", "state": state}
        name = f"{parent}/pipelineJobs/{id}"
        details = {"task_details": [task]}
        return v1.PipelineJob(name=name, state=f"PIPELINE_STATE_{state}", job_detail=details)

    vertex.route("GET", "{parent}/pipelineJobs/{id}", answer)
    watch.follow(f"{vertex.parent}/pipelineJobs/a", "gs://demo/job")
    lines = [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["train: running", "train: step 7", "train: succeeded"]


@pytest.mark.parametrize(
    ("task", "kind", "state"),
    [
        ("custom-training-job", v1.CustomJob, "EXPIRED"),
        ("model-batch-predict", v1.BatchPredictionJob, "PARTIALLY_SUCCEEDED"),
    ],
)
@pytest.mark.parametrize("is_of_run", [True, False])
def test_state_unknown_to_launcher_cancels(
    vertex, bucket, monkeypatch, capsys, task, kind, state, is_of_run
):
    """A job that ended before the run began is one of an earlier attempt."""
    name, began = f"{vertex.parent}/pipelineJobs/a", now()
    details = {"task_details": [{"task_name": task, "state": "RUNNING"}]}
    run = v1.PipelineJob(name=name, state="PIPELINE_STATE_RUNNING", job_detail=details)
    run.labels, run.create_time = {"run": "r"}, began
    vertex.pipeline_jobs.items[name] = run
    job = kind(name="1", display_name="r")
    job.state, job.labels = f"JOB_STATE_{state}", dict([MANAGED_BY])
    job.create_time = began + datetime.timedelta(seconds=1 if is_of_run else -1)
    jobs = vertex.custom_jobs if kind is v1.CustomJob else vertex.batches
    jobs.items[job.name] = job

    def end(_):
        if run.state.name == "PIPELINE_STATE_RUNNING":
            run.state = "PIPELINE_STATE_SUCCEEDED"

    monkeypatch.setattr(watch.time, "sleep", end)
    ended = watch.follow(name, "gs://demo/job")
    assert watch.state_of(ended) == ("CANCELLED" if is_of_run else "SUCCEEDED")
    assert (f"{state.lower()}, for which" in capsys.readouterr().out) == is_of_run


@pytest.mark.parametrize("place", ["data", "gs:///data", "s3://bucket/data"])
def test_source_outside_buckets_is_refused(place):
    with pytest.raises(UserError, match=f"--source {place}: .*give gs://BUCKET/DIR"):
        require_bucket(place)
