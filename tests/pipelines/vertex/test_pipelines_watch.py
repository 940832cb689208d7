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
    (bucket / "job").mkdir()
    (bucket / "job" / "journal-chief-0-0.jsonl").write_text('{"event": "step", "step": 7}')
    details = {"task_details": [{"task_name": task, "state": "RUNNING"}]}
    run = v1.PipelineJob(state="PIPELINE_STATE_RUNNING", job_detail=details)
    run.name, run.labels, run.create_time = f"{vertex.parent}/pipelineJobs/a", {"run": "r"}, now()
    vertex.pipeline_jobs.items[run.name] = run
    job = kind(name="1", display_name="r", state=f"JOB_STATE_{state}", labels=dict([MANAGED_BY]))
    job.create_time = run.create_time + datetime.timedelta(seconds=1 if is_of_run else -1)
    (vertex.custom_jobs if kind is v1.CustomJob else vertex.batches).items["1"] = job
    naps = []

    def sleep(_):
        naps.append(run.state.name)
        if naps[2:] and not is_of_run:
            run.state = "PIPELINE_STATE_SUCCEEDED"

    monkeypatch.setattr(watch.time, "sleep", sleep)
    ended = watch.follow(run.name, "gs://demo/job")
    assert watch.state_of(ended) == ("CANCELLED" if is_of_run else "SUCCEEDED")
    lines = [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    step, newest = ("train", ["train: step 7"]) if kind is v1.CustomJob else (task, [])
    why = f"{step}: {state.lower()}, for which its step would wait for ever; the run is cancelled"
    assert lines == [f"{step}: running", *([why] if is_of_run else []), *newest]


@pytest.mark.parametrize("place", ["data", "gs:///data", "s3://bucket/data"])
def test_source_outside_buckets_is_refused(place):
    with pytest.raises(UserError, match=f"--source {place}: .*give gs://BUCKET/DIR"):
        require_bucket(place)
