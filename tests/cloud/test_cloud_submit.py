"""What a user does with runs that are submitted: schedule them, list and cancel them, go on with them, and wait."""

import pathlib
import re
import time

import pytest
import requests
from google.cloud import aiplatform

ONE = "{strategy: one_device, chief: {machine: n1-standard-8}}"
_PLACE = ["--project", "demo-project"]
pytestmark = pytest.mark.cloud


@pytest.fixture(autouse=True)
def _project(cloud):
    aiplatform.init(project="demo-project", location="us-central1")


def _said(cloud, *flags: object, code: int = 0) -> str:
    process = cloud.run("pipelines/submit.py", *_PLACE, *flags)
    said = process.communicate()[0]
    assert process.returncode == code, said
    return said


def _until_ended(cloud, job: aiplatform.PipelineJob) -> str:
    cloud.until(lambda: job.done())
    return job.state.name


def test_each_run_of_a_schedule_is_a_version_of_one_model_and_converts_what_is_there_by_then(cloud):
    (cloud.work / "one.yaml").write_text(ONE)
    flags = ["--bucket", f"gs://{cloud.bucket}", "--image", cloud.image, "--cluster", cloud.work / "one.yaml"]
    made = _said(cloud, *flags, "--name", cloud.bucket, "--train-steps", 30, "--cron", "0 3 * * 1", "--yes")
    number = re.search(r"schedules/(\d+)", made)[1]
    assert f"schedule {number}  active  0 3 * * 1" in _said(cloud, "--list")

    runs: list[str] = []
    for _ in range(3):
        requests.post(f"http://127.0.0.1/loopback/schedules/{number}/fire").raise_for_status()
        [job] = [job for job in aiplatform.PipelineJob.list() if f"-{number}-" in job.name and job.name not in runs]
        runs.append(job.name)
        assert _until_ended(cloud, job) == "PIPELINE_STATE_SUCCEEDED"
    [model] = aiplatform.Model.list(filter=f'display_name="{cloud.bucket}"')
    versions = sorted(model.versioning_registry.list_versions(), key=lambda version: int(version.version_id))
    found = [aiplatform.Model(model.resource_name, version=version.version_id) for version in versions]
    assert [version.labels["run"] for version in found] == runs
    assert sum("champion" in version.version_aliases for version in found) == 1
    assert all((cloud.files / "runs" / run / "job" / "DONE.json").is_file() for run in runs)

    assert "cancelled" in _said(cloud, "--cancel", number) and number not in _said(cloud, "--list")


def test_a_run_that_was_cancelled_is_listed_and_goes_on_where_it_was(cloud):
    process, job, job_dir = cloud.train(ONE, "--train-steps", 3_000, "--", "--checkpoint-secs", 2)
    run = job["display_name"]
    assert re.search(f"{run}  running  .*console.cloud.google.com", _said(cloud, "--list"))
    _said(cloud, "--bucket", f"gs://{cloud.bucket}", "--resume", run, "--yes", code=2)  # it is still going on
    assert f"cancelled projects/demo-project/locations/us-central1/pipelineJobs/{run}" in _said(cloud, "--cancel", run)
    cloud.finish(process, code=1)
    saved = cloud.steps(job_dir)

    resumed = _said(cloud, "--bucket", f"gs://{cloud.bucket}", "--resume", run, "--yes", "--wait")
    assert f"submitted {run}-2:" in resumed and "version 1 of" in resumed
    starts = [line for path in sorted(job_dir.glob("journal-chief*")) for line in path.read_text().splitlines()]
    assert any(f'"event": "resume", "step": {saved}' in line for line in starts)
    assert '"step": 3000' in (job_dir / "DONE.json").read_text()


def test_credentials_that_expire_end_no_waiting(cloud):
    process, job, _ = cloud.train(ONE, "--train-steps", 1_000)
    refused = f"pipelineJobs/{job['display_name']}"
    cloud.fail({"match": refused, "status": 401})
    log = pathlib.Path(cloud.work, "requests.log")
    cloud.until(lambda: len(re.findall(f"{refused}.* 401$", log.read_text(), re.MULTILINE)) >= 2)
    time.sleep(1)
    cloud.fail()
    printed = cloud.finish(process).printed
    assert printed.count("the run goes on, and so does waiting for it (run: gcloud auth") == 1
    assert "cleanup: succeeded" in printed and "accuracy" in printed
