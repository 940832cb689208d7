"""Schedules, lists, cancels and resumes runs on Vertex AI, and waits for them, as a user does."""

import contextlib
import io
import json
import pathlib
import re
import time
from typing import Any

import pytest
import requests
from google.cloud import aiplatform
from google.cloud import aiplatform_v1 as v1

from common.errors import UserError
from pipelines import submit

ONE = "{strategy: one_device, chief: {machine: n1-standard-8}}"
_PLACE = ["--project", "demo-project"]
pytestmark = pytest.mark.cloud


@pytest.fixture(autouse=True)
def _project(cloud):
    aiplatform.init(project="demo-project", location="us-central1")


_ACCOUNT = "trains@demo-project.iam.gserviceaccount.com"
_REGION = "projects/demo-project/locations/us-central1"
# Of settings of a training job (`JobSettings`) a value, and what the job then has.
_SETTINGS = {
    "training_service_account": (_ACCOUNT, {"service_account": _ACCOUNT}),
    "network": ("projects/1/global/networks/n", {"network": "projects/1/global/networks/n"}),
    "encryption_key": (
        f"{_REGION}/keyRings/r/cryptoKeys/k",
        {"encryption_spec.kms_key_name": f"{_REGION}/keyRings/r/cryptoKeys/k"},
    ),
    "labels": ("team=blue", {"labels.team": "blue", "labels.managed_by": "tfrecord-training"}),
    "env": ("GREETING=hello = world", {"env.GREETING": "hello = world"}),
    "tensorboard": (f"{_REGION}/tensorboards/1", {"tensorboard": f"{_REGION}/tensorboards/1"}),
}


def _said(*flags: object, code: int = 0) -> str:
    """What submit.py prints, in this process, which has imported it already."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert submit.main([*_PLACE, *map(str, flags)]) == code
    return out.getvalue()


def _until_ended(job: aiplatform.PipelineJob) -> str:
    deadline = time.monotonic() + 900
    while job.state.name == "PIPELINE_STATE_RUNNING":
        assert time.monotonic() < deadline
        time.sleep(0.5)
    return job.state.name


def test_each_run_of_a_schedule_is_a_version(cloud):
    (cloud.work / "one.yaml").write_text(ONE)
    flags = ["--image", cloud.image, "--cluster", cloud.work / "one.yaml"]
    assert not cloud.run("pipelines/compile.py", "--output-dir", cloud.work, *flags).wait()
    shown = _said(
        "--dry-run",
        "--bucket",
        f"gs://{cloud.bucket}",
        *flags,
        "--name",
        cloud.bucket,
        "--train-steps",
        30,
    )
    values = json.loads(shown)["pipelineJob"]["runtimeConfig"]["parameterValues"]
    root = f"gs://{cloud.bucket}/runs"
    schedule = aiplatform.PipelineJob(
        display_name="weekly",
        template_path=str(cloud.work / "training-vertex.yaml"),
        pipeline_root=root,
        parameter_values={**values, "job_dir": root},
        labels={"managed_by": "tfrecord-training"},
    ).create_schedule(display_name="weekly", cron="0 3 * * 1")
    number = schedule.name.rpartition("/")[2]

    runs: list[str] = []
    for _ in range(2):
        requests.post(f"http://127.0.0.1/loopback/schedules/{number}/fire").raise_for_status()
        [job] = [
            job
            for job in aiplatform.PipelineJob.list()
            if f"-{number}-" in job.name and job.name not in runs
        ]
        runs.append(job.name)
        assert _until_ended(job) == "PIPELINE_STATE_SUCCEEDED"
    [model] = aiplatform.Model.list(filter=f'display_name="{cloud.bucket}"')
    versions = sorted(
        model.versioning_registry.list_versions(), key=lambda version: int(version.version_id)
    )
    found = [
        aiplatform.Model(model.resource_name, version=version.version_id) for version in versions
    ]
    assert [version.labels["run"] for version in found] == runs
    assert sum("champion" in version.version_aliases for version in found) == 1
    assert all((cloud.files / "runs" / run / "job" / "DONE.json").is_file() for run in runs)


def test_a_run_that_was_cancelled_goes_on_where_it_was(cloud):
    process, job, job_dir = cloud.train(ONE, "--train-steps", 8_000, "--", "--checkpoint-secs", 2)
    run, again = (
        job["display_name"],
        ["--bucket", f"gs://{cloud.bucket}", "--yes", "--wait", "--resume"],
    )
    with pytest.raises(UserError, match=f"{run} is still going on"):
        submit.main([*_PLACE, *again, run])
    assert f"cancelled projects/demo-project/locations/us-central1/pipelineJobs/{run}" in _said(
        "--cancel", run
    )
    cloud.finish(process, code=1)
    saved = cloud.steps(job_dir)
    assert re.search(f"{run}  cancelled  .*console.cloud.google.com", _said("--list"))

    resumed = _said(*again, run)
    assert f"submitted {run}-2:" in resumed and "version 1 of" in resumed
    lines = [
        json.loads(line)
        for path in job_dir.glob("journal-chief*")
        for line in path.read_text().splitlines()
    ]
    assert [line["step"] for line in lines if line["event"] == "resume"] == [
        saved
    ] and 0 < saved < 8_000
    assert json.loads((job_dir / "DONE.json").read_text())["step"] == 8_000
    attempts = json.loads((job_dir / "attempts.json").read_text())
    assert [(line["display_name"], line["ending"]) for line in attempts] == [
        (run, "cancelled"),
        (f"{run}-2", "succeeded"),
    ]
    assert attempts[1]["step_before"] == attempts[0]["step_after"] == saved
    assert "has ended well, and nothing is sent" in _said(*again, run)


def test_credentials_that_expire_end_no_waiting(cloud):
    process, job, _ = cloud.train(ONE, "--train-steps", 1_000)
    refused = f"pipelineJobs/{job['display_name']}"
    cloud.fail({"match": refused, "status": 401})
    log = pathlib.Path(cloud.work, "requests.log")
    cloud.until(lambda: len(re.findall(f"{refused}.* 401$", log.read_text(), re.MULTILINE)) >= 2)
    time.sleep(1)
    cloud.fail()
    printed = cloud.finish(process).printed
    assert (
        printed.count(
            "gcloud auth application-default login; the run goes on, and so does waiting for it"
        )
        == 1
    )
    assert "cleanup: succeeded" in printed and "accuracy" in printed


def _found(job: dict[str, Any], path: str) -> Any:
    """Returns what a custom job has at a path: in its specification, among its first container's variables, or its labels."""
    [pool, *_] = job["job_spec"]["worker_pool_specs"]
    env = {each["name"]: each["value"] for each in pool["container_spec"]["env"]}
    found: Any = {**job["job_spec"], "env": env, "labels": job["labels"]}
    found["encryption_spec"] = job.get("encryption_spec", {})
    for name in path.split("."):
        found = found[name]
    return found


def test_settings_arrive_in_the_job_that_the_pipeline_makes(cloud, tmp_path):
    (tmp_path / "cluster.yaml").write_text(ONE)
    place = [
        "--bucket",
        f"gs://{cloud.bucket}",
        "--image",
        cloud.image,
        "--cluster",
        tmp_path / "cluster.yaml",
        "--yes",
    ]
    flags = [f"--set={name}={value}" for name, (value, _) in _SETTINGS.items()]
    run = re.search(r"submitted (\S+):", _said(*place, *flags))[1]
    [job] = cloud.until(lambda: aiplatform.CustomJob.list(filter=f'display_name="{run}"'))
    made = v1.CustomJob.to_dict(job.gca_resource, use_integers_for_enums=False)
    for path, expected in (each for _, arrived in _SETTINGS.values() for each in arrived.items()):
        assert _found(made, path) == expected
    assert made["labels"]["run"] == run
    _said("--cancel", run)


def test_where_there_is_no_capacity_the_run_trains_on_the_next_machines(cloud):
    cloud.lack(n1_highcpu_16=1)
    others = (
        "[{machine: n2-standard-8}, {machine: n1-highcpu-32}]"  # of N2 the project may not have any
    )
    cluster = f"{{strategy: one_device, chief: {{machine: n1-highcpu-16, alternatives: {others}}}}}"
    run = cloud.submit(cluster, "--train-steps", 100)
    assert "1 x n1-highcpu-16, else n2-standard-8, else n1-highcpu-32" in run.printed
    assert "at most 168.0 machine-hours (1 machine for 168.0 h)" in run.printed
    assert run.printed.count("training: stockout, at step 0") == 2
    assert "chief: 1 x n1-highcpu-32, from step 0" in run.printed
    attempts = json.loads((run.job_dir / "attempts.json").read_text())
    assert [line["ending"] for line in attempts] == ["stockout", "stockout", "succeeded"]
    assert "exceed quota limits" in attempts[1]["error"]
    assert run.step() == 100 and len({job["output"] for job in run.custom_jobs}) == 1


def test_a_training_that_fails_is_told_with_its_replica_and_its_last_lines(cloud):
    run = cloud.finish(cloud.start(ONE, "--train-steps", 100, "--", "--num-gpus", 1), code=1)
    assert re.search(r"train \(chief/0\) failed: .*non-zero status of \d+", run.printed)
    assert (
        "gives this replica 1 GPUs" in run.printed
        and "training is given up: it would fail again" in run.printed
    )
