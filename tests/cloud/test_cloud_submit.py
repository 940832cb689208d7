"""Schedules, searches, cancels, resumes and waits for runs on Vertex AI, as a user does."""

import csv
import json
import re
import time

import pytest
import yaml
from google.cloud import aiplatform

from tests.cloud.conftest import IMAGE, ONE, PIPELINE

pytestmark = pytest.mark.cloud
SUBMIT = "pipelines/submit.py --project demo-project"
REGION = "projects/demo-project/locations/us-central1"


def test_scheduled_runs_are_versions(cloud, versions):
    flags = cloud.flags(ONE)
    compiled = re.search("--image.*", flags)[0]
    cloud.printed(f"pipelines/compile.py --output-dir {cloud.work} {compiled}")
    shown = cloud.printed(f"pipelines/submit.py --dry-run --train-steps 30 {flags}")
    request, _ = json.JSONDecoder().raw_decode(shown, shown.index("{"))
    request = request["pipelineJob"]
    root = f"gs://{cloud.bucket}/runs"
    schedule = aiplatform.PipelineJob(
        display_name="weekly",
        template_path=str(cloud.work / "training-vertex.yaml"),
        pipeline_root=root,
        parameter_values={**request["runtimeConfig"]["parameterValues"], "job_dir": root},
        labels={"managed_by": "tfrecord-training"},
    ).create_schedule(display_name="weekly", cron="0 3 * * 1", service_account=PIPELINE)
    number = schedule.name.rpartition("/")[2]

    runs = []
    for _ in range(2):
        cloud.ask("POST", f"schedules/{number}/fire")
        jobs = [job for job in aiplatform.PipelineJob.list() if f"-{number}-" in job.name]
        [job] = [job for job in jobs if job.name not in runs]
        cloud.until(lambda job=job: job.state.name == "PIPELINE_STATE_SUCCEEDED", limit_s=900)
        runs.append(job.name)
    assert [version.labels["run"] for version in versions()] == runs
    assert sum("champion" in version.version_aliases for version in versions()) == 1
    assert all((cloud.files / "runs" / run / "job" / "DONE.json").is_file() for run in runs)
    log = (cloud.work / "logs" / runs[1] / "pipeline.log").read_text()
    executed = re.findall(r"Executing task \S*'([\w-]+)'", log)
    assert "evaluate" in executed and "convert" not in executed  # It was in the cache.


def test_cancelled_run_is_resumed(cloud):
    process, job, job_dir = cloud.train(ONE, "--train-steps 8000 -- --checkpoint-secs 2")
    run = job["display_name"]
    resume = f"{SUBMIT} --bucket gs://{cloud.bucket} --yes --wait --resume {run}"
    assert f"{run} is still going on" in cloud.printed(resume, code=2)
    cancelled = f"cancelled {REGION}/pipelineJobs/{run}"
    assert cancelled in cloud.printed(f"{SUBMIT} --cancel {run}")
    cloud.finish(process, code=1)
    saved = cloud.steps(job_dir)
    assert re.search(f"{run}  cancelled  .*console.cloud", cloud.printed(f"{SUBMIT} --list"))

    resumed = cloud.printed(resume)
    assert f"submitted {run}-2:" in resumed and "version 1 of" in resumed
    assert [event["step"] for event in cloud.events(job_dir, "resume")] == [saved]
    assert json.loads((job_dir / "DONE.json").read_text())["step"] == 8_000 > saved > 0
    first, second = json.loads((job_dir / "attempts.json").read_text())
    assert (first["ending"], second["ending"]) == ("cancelled", "succeeded")
    assert first["step_after"] == second["step_before"] == saved
    assert "has ended well, and nothing is sent" in cloud.printed(resume)


def test_refused_polls_end_no_waiting(cloud):
    process, job, _ = cloud.train(ONE, "--train-steps 1000")
    refused = f"pipelineJobs/{job['display_name']}"
    for status in (401, 429, 503):
        cloud.fail({"match": refused, "status": status, "retry_after_s": 1})
        line = f"{refused}.* {status}\n"
        cloud.until(lambda line=line: len(re.findall(line, cloud.log())) >= 2)
    time.sleep(1)
    cloud.fail()
    printed = cloud.finish(process).printed
    assert printed.count("gcloud auth application-default login; the run goes on") == 1
    assert "cleanup: succeeded" in printed and "accuracy" in printed


def test_missing_quota_takes_next_machine(cloud):
    pool = "{machine: n2-standard-8, alternatives: [{machine: n1-highcpu-64}]}"
    run = cloud.submit(f"{{strategy: one_device, chief: {pool}}}", "--train-steps 100")
    assert "chief: 1 x n1-highcpu-64, from step 0" in run.printed
    assert run.attempts() == ["stockout", "succeeded"]


def test_failed_training_shows_last_lines(cloud):
    run = cloud.finish(cloud.start(ONE, "--train-steps 100 -- --num-gpus 1"), code=1)
    assert re.search(r"train \(chief/0\) failed: .*non-zero status of \d+", run.printed)
    assert "gives this replica 1 GPUs" in run.printed
    assert "training is given up: it would fail again" in run.printed


@pytest.mark.cloud_ci
def test_study_to_registered_model(cloud, tmp_path):
    """Two trainings read one dataset in the bucket, and the better model is registered."""
    common = {"train_steps": 60, "min_accuracy": 0.1, "project": "demo-project", "image": IMAGE}
    common |= {"bucket": f"gs://{cloud.bucket}", "cluster": "clusters/vertex-cpu.yaml"}
    common["service_account"] = PIPELINE
    common["name"] = "tuned"  # All tests share one registry.
    study = {"asks": "?", "run": common, "space": {"batch_size": [32, 64]}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    line = f"pipelines/tune.py {tmp_path}/study.yaml --output {tmp_path}/study --backend vertex"
    assert "version 1 of tuned" in cloud.printed(f"{line} --then register")
    trials = list(csv.DictReader((tmp_path / "study" / "study.csv").open()))
    assert [trial["state"] for trial in trials] == ["complete", "complete"]
    assert len(list((cloud.files / "datasets").glob("digits-*"))) == 1
