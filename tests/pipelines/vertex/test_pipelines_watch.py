import pytest
from google.cloud import aiplatform_v1 as v1

from common.errors import UserError
from pipelines.vertex import watch
from pipelines.vertex.submission import require_bucket
from pipelines.vertex.watch import newest_step


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


@pytest.mark.parametrize("place", ["data", "gs:///data", "s3://bucket/data"])
def test_source_outside_buckets_is_refused(place):
    with pytest.raises(UserError, match=f"--source {place}: .*give gs://BUCKET/DIR"):
        require_bucket(place)
