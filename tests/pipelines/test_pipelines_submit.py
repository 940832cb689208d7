import json
import re
from typing import Any
from unittest import mock

import pytest
from lint.specs import lint

from components.train.cluster.cluster_file import Cluster
from pipelines import submit
from trainer.base.errors import UserError

IMAGE = "us-docker.pkg.dev/p/r/i@sha256:" + "a" * 64


@pytest.fixture
def aiplatform(vertex):
    from google.cloud import aiplatform  # 3 s

    return aiplatform


def prepared(*flags: str) -> dict[str, Any]:
    args = submit._parser().parse_args(["--project", "demo-project", "--bucket", "gs://my-bucket", *flags])
    return submit.prepare(args)


def test_what_is_sent_is_what_the_dry_run_shows(aiplatform, monkeypatch):
    # It would ask Google whether the bucket is there, for minutes.
    monkeypatch.setattr(
        "google.cloud.aiplatform.utils.gcs_utils.create_gcs_bucket_for_pipeline_artifacts_if_it_does_not_exist",
        lambda **_: None,
    )
    monkeypatch.setattr(submit, "require_bucket", lambda _: None)
    prepared_job = prepared("--image", IMAGE, "--cluster", "clusters/vertex-ps.yaml", "--shards", "3")
    shown = submit.request(prepared_job, "a@b.c")
    assert submit._submit(prepared_job, "a@b.c", wait=False, max_restarts=5) == 0
    (job,) = aiplatform.PipelineJob.list()
    sent = {k: v for k, v in job.to_dict().items() if k in shown["pipelineJob"]}
    assert json.loads(json.dumps(sent)) == shown["pipelineJob"]
    assert job.name == shown["pipelineJobId"]
    values = shown["pipelineJob"]["runtimeConfig"]["parameterValues"]
    assert values["scheduling_strategy"] == "SPOT"
    assert values["job_dir"] == f"gs://my-bucket/runs/{job.name}/job"
    assert values["registry"] == "vertex://demo-project/us-central1"
    assert values["convert_args"] == ["--shards=3"]
    assert shown["pipelineJob"]["serviceAccount"] == "a@b.c"


def test_each_of_two_submissions_at_once_sends_its_own_image_and_has_none_of_the_traps(aiplatform):
    jobs = {image: prepared("--image", image) for image in (IMAGE, IMAGE.replace("aa", "bb"))}
    for image, job in jobs.items():
        spec = submit.request(job, "")["pipelineJob"]["pipelineSpec"]
        assert spec["deploymentSpec"]["executors"]["exec-evaluate"]["container"]["image"] == image
        assert lint(spec) == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--project", "Not_A_Project"], "give the id of a project"),
        (["--location", "moon"], "give a region"),
        (["--bucket", "my-bucket"], "give a bucket, such as gs://my-bucket"),
        ([], "--image is missing"),
        (["--image", "r/i:tag"], "--image r/i:tag: give .* by digest"),
        (["--image", IMAGE, "--cluster", "clusters/local-ps.yaml"], "Vertex needs a machine type"),
        (["--image", IMAGE, "--dataset", "mnist", "--source", "data"], "upload it and give gs://BUCKET/DIR"),
        (["--image", IMAGE, "--", "--no-such-flag"], "unrecognized arguments: --no-such-flag"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_sent(aiplatform, flags, message):
    with pytest.raises(UserError, match=message):
        prepared(*flags)
    assert aiplatform.PipelineJob.list() == []


def test_synchronous_training_drops_the_parameter_servers_as_everywhere(vertex, capsys):
    values = prepared("--image", IMAGE, "--cluster", "clusters/vertex-ps.yaml", "--", "--sync")["parameter_values"]
    cluster = json.loads(values["cluster"])
    assert cluster["strategy"] == "multi_worker_mirrored" and "ps" not in cluster
    assert "--sync" not in values["trainer_args"] and "--deterministic" in values["trainer_args"]
    assert "replaced: clusters/vertex-ps.yaml: --sync: the parameter servers are dropped" in capsys.readouterr().err


def test_the_dry_run_needs_no_account_and_says_what_stands_in(monkeypatch, capsys):
    for name in ("GOOGLE_CLOUD_PROJECT", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    assert submit.main(["--dry-run"]) == 0
    told = capsys.readouterr()
    assert "--project, --bucket, --image not given" in told.err
    assert json.loads(told.out)["parent"] == "projects/my-project/locations/us-central1"


@pytest.mark.parametrize("verdict", ["reject", "register", "promote"])
def test_whoever_waits_is_told_the_verdict_and_a_build_may_fail_by_it(monkeypatch, capsys, verdict):
    values = {"job_dir": "gs://b/job", "cluster": Cluster.load("clusters/vertex-cpu.yaml").to_json()}
    monkeypatch.setattr(submit, "prepare", lambda _: {"parameter_values": values})
    monkeypatch.setattr(submit, "_submit", lambda *_: 0)
    monkeypatch.setattr(submit, "decision", lambda place: {"verdict": verdict, "why": f"so it is in {place}"})
    for flags, code in ((["--wait"], 0), (["--wait", "--fail-on-reject"], 3 if verdict == "reject" else 0)):
        assert submit.main(flags) == code
        assert re.fullmatch(rf"{verdict}\w*(, and not promoted)?: so it is in gs://b/job\n", capsys.readouterr().out)
    with pytest.raises(UserError, match="--fail-on-reject needs --wait"):
        submit.main(["--fail-on-reject"])


def test_what_counts_is_the_newest_training_of_a_run(aiplatform):
    aiplatform.init(project="demo-project", location="us-central1", staging_bucket="gs://b")
    pool = {"machine_spec": {"machine_type": "n1-standard-4"}, "container_spec": {"image_uri": IMAGE}}

    def train(run: str) -> Any:
        job = aiplatform.CustomJob(display_name=run, worker_pool_specs=[pool])
        job.submit()
        return job

    assert not submit._was_cancelled("a")
    train("a").cancel()
    assert submit._was_cancelled("a") and not submit._was_cancelled("b")
    train("a")
    assert not submit._was_cancelled("a")


@pytest.mark.parametrize(
    ("ends", "steps", "minutes", "code", "timeouts"),
    [
        (["SUCCEEDED"], [], 1, 0, ["3600s"]),
        (["FAILED", "FAILED", "SUCCEEDED"], [5, 9], 20, 0, ["3600s", "2400s", "1200s"]),
        (["FAILED", "FAILED"], [5, 5], 1, 1, ["3600s", "3540s"]),  # it comes no further
        (["FAILED"], [-1], 1, 1, ["3600s"]),  # not begun, or done
        (["CANCELLED"], [5], 1, 1, ["3600s"]),  # for which the client raises nothing
        (["FAILED"], [5], 60, 1, ["3600s"]),  # its time is up
    ],
)
def test_what_is_submitted_again_is_training_that_came_further_within_its_time(
    monkeypatch, ends, steps, minutes, code, timeouts
):
    states, reached, sent, clock = iter(ends), iter(steps), [], [0.0]

    def send(job: dict[str, Any], _: str) -> mock.Mock:
        def wait() -> None:
            clock[0] += 60 * minutes
            if run.state.name.endswith("FAILED"):
                raise RuntimeError("Job failed")

        sent.append(job["parameter_values"]["timeout"])
        run = mock.Mock(wait=wait)
        run.state.name = f"PIPELINE_STATE_{next(states)}"
        return run

    monkeypatch.setattr(submit, "_send", send)
    monkeypatch.setattr(submit, "unfinished_step", lambda _: next(reached))
    monkeypatch.setattr(submit.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(submit, "_was_cancelled", lambda _: False)
    job = {"job_id": "training", "parameter_values": {"job_dir": "gs://b/job", "timeout": "3600s", "run_id": "run"}}
    assert submit._submit(job, "", wait=True, max_restarts=5) == code
    assert sent == timeouts
