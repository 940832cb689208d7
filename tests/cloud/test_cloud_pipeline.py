"""The whole product on Vertex AI: submit.py's request, executed task by task with Google's clients and launchers."""

import collections
import json
import os
import pathlib
import re
import signal
from typing import Any

import numpy as np
import psutil
import pytest
from google.cloud import aiplatform
from PIL import Image

from components.predict.model import Model
from tests.deploy.calls import strangers

ONE = "{strategy: one_device, chief: {machine: n1-standard-8}}"
SERVERS = """
strategy: parameter_server
chief: {machine: n1-standard-4}
worker: {machine: n1-standard-8, replicas: 2}
ps: {machine: n1-highmem-2}
"""
SYNC = """
{strategy: multi_worker_mirrored, chief: {machine: n1-standard-8}, worker: {machine: n1-standard-8},
 scheduling: {strategy: SPOT}}
"""
MIRRORED = (
    "{strategy: mirrored, chief: {machine: n1-standard-8}, evaluator: {machine: n1-standard-4}}"
)
pytestmark = pytest.mark.cloud


@pytest.fixture(autouse=True)
def _project(cloud):
    aiplatform.init(project="demo-project", location="us-central1")


def _versions(name: str) -> list[aiplatform.Model]:
    """All versions of the model of this name, oldest first."""
    models = aiplatform.Model.list(filter=f'display_name="{name}"')
    assert len(models) <= 1, models
    found = models[0].versioning_registry.list_versions() if models else []
    order = sorted(found, key=lambda version: int(version.version_id))
    return [
        aiplatform.Model(models[0].resource_name, version=version.version_id) for version in order
    ]


def _journal(job_dir: pathlib.Path) -> list[dict[str, Any]]:
    """What the chief tells, in all its attempts."""
    paths = sorted(job_dir.glob("journal-chief-0-*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def _kill_launcher(run_id: str) -> None:
    """Kills Google's launcher of a run's training."""
    launchers = [
        p for p in psutil.process_iter(["cmdline"]) if "CustomJob" in (p.info["cmdline"] or [])
    ]
    [
        launcher.kill()
        for launcher in launchers
        if any(run_id in word for word in launcher.cmdline())
    ]


def _assert_few_requests(cloud, run_id: str, job_dir: pathlib.Path, replicas: int) -> None:
    """Checks that each file of a job is requested a bounded number of times for each thing that happens to the job.

    Each replica may request a file 12 times, 4 times more for an evaluation, and once more every 4
    s by its own clock. Whoever follows the job may list its journals once a poll.
    """
    journals = list(job_dir.glob("journal-*.jsonl"))
    events = [json.loads(line) for path in journals for line in path.read_text().splitlines()]
    evaluations = sum(event["event"] == "evaluation" for event in events)
    seconds = max(event["time"] for event in events) - min(event["time"] for event in events)
    log = (cloud.work / "requests.log").read_text()
    polls = len(re.findall(rf"GET aiplatform\S*/pipelineJobs/{run_id}", log))
    own_requests = 12 * max(replicas, len(journals)) + 4 * evaluations + seconds * len(journals) / 4
    requests = cloud.asked(job_dir)
    counts = collections.Counter(
        re.search(rf"{job_dir.name}/?([^?&\s]*)", line)[1] for line in requests
    )
    assert counts["DONE.json"] > 0
    assert counts.pop("journal-chief-0-", 0) <= polls + 4, "\n".join(requests)
    assert max(counts.values()) <= own_requests, (own_requests, counts.most_common(5))


@pytest.mark.parametrize(
    ("cluster", "store_fails"),
    [
        pytest.param(ONE, False, id="one_chief", marks=[pytest.mark.cloud_ci, pytest.mark.smoke]),
        pytest.param(SERVERS, False, id="servers", marks=pytest.mark.cloud_ci),
        pytest.param(MIRRORED, False, id="mirrored"),
        pytest.param(SERVERS, True, id="failing_store"),
    ],
)
def test_a_run_ends_with_a_version_that_is_the_champion(cloud, cluster, store_fails):
    if store_fails:
        host = r"(storage|www)\.googleapis\.com/.*" + cloud.bucket
        cloud.fail(
            {"match": host, "share": 0.02, "status": 503},
            {"match": f"{host}.*", "share": 0.005, "reset": True},
        )
    rows = [
        {"image": image}
        for image in np.random.default_rng(0).integers(0, 17, (70, 8, 8, 1)).tolist()
    ]
    (cloud.files / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = cloud.submit(
        cluster, "--train-steps", 200, "--set", f"predict=gs://{cloud.bucket}/rows.jsonl"
    )

    assert run.step() >= 200
    [version] = _versions(cloud.bucket)
    assert {"champion", "default"} <= set(version.version_aliases)
    model_dir = pathlib.Path("/gcs", version.uri.removeprefix("gs://"))
    [results] = run.job_dir.glob("predictions/*/prediction.results-*")
    predictions = [json.loads(line) for line in results.read_text().splitlines()]
    assert [each["instance"] for each in predictions] == rows
    expected = Model.load(str(model_dir)).ask(
        "serving_default", {"image": np.uint8([row["image"] for row in rows])}
    )
    probabilities = [each["prediction"]["probabilities"] for each in predictions]
    np.testing.assert_allclose(probabilities, expected["probabilities"], atol=1e-6)
    [job] = run.custom_jobs
    assert job["state"] == "JOB_STATE_SUCCEEDED" and not job["running"]
    _assert_few_requests(cloud, run.run_id, run.job_dir, replicas=1)
    assert not strangers((cloud.work / "requests.log").read_text()), (
        "docs/PROJECT.md does not say which role they need"
    )


def test_the_readmes_lines_for_vertex_ai_run_as_they_are_written(cloud):
    readme = pathlib.Path("README.md").read_text()
    for name, ours in {
        "PROJECT": "demo-project",
        "BUCKET": cloud.bucket,
        "sha256:...": f"sha256:{'0' * 64}",
    }.items():
        readme = readme.replace(name, ours)
    lines = [
        line.split(" #")[0].split()[1:]
        for line in readme.splitlines()
        if line.startswith(".venv/bin/python")
    ]
    compiled, shown, submitted = [
        words for words in lines if re.search("pipelines/(compile|submit)", words[0])
    ]
    for words in (compiled, shown):
        process = cloud.run(*words)
        assert process.communicate()[0] and not process.returncode
    run = cloud.finish(cloud.run(*submitted))
    assert len(run.custom_jobs[0]["events"]) >= 8 and run.step() >= 600


@pytest.mark.cloud_ci
def test_a_model_that_the_gate_rejects_gets_no_version(cloud):
    run = cloud.finish(
        cloud.start(ONE, "--train-steps", 20, "--min-accuracy", 0.9999, "--fail-on-reject"), code=3
    )

    assert "rejected: accuracy" in run.printed and not _versions(cloud.bucket)


def test_a_better_second_version_becomes_the_champion_with_the_dataset_of_the_cache_after_a_cleanup(
    cloud,
):
    first = cloud.submit(ONE, "--train-steps", 30)
    words = [
        "components.cleanup",
        "--project",
        "demo-project",
        "--location",
        "us-central1",
        "--keep-versions",
        1,
    ]
    words += ["--bucket", f"gs://{cloud.bucket}", "--run", first.run_id]
    said = [
        cloud.run("-m", *words, *flags).communicate()[0] for flags in (["--delete", "--yes"], [])
    ]
    assert "checkpoints of a finished job" in said[0] and "0 items" in said[1], said
    assert not list(first.job_dir.glob("checkpoints/*"))
    second = cloud.submit(ONE, "--train-steps", 400)

    first, better = (set(version.version_aliases) for version in _versions(cloud.bucket))
    assert {"champion", "default"} <= better and first == {"previous"}
    executed = re.findall(
        r"Executing task \S*'([\w-]+)'",
        (cloud.work / "logs" / second.run_id / "pipeline.log").read_text(),
    )
    assert "evaluate" in executed and "convert" not in executed


def test_a_dataset_is_converted_from_a_bucket_that_is_read_as_a_store(cloud):
    for i in range(600):
        (cloud.files / "data" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 128 + 127 * (i % 2), (8, 8), np.uint8)
        Image.fromarray(pixels).save(cloud.files / "data" / "ab"[i % 2] / f"{i}.png")
    flags = ["--dataset", "images", "--source", f"gs://{cloud.bucket}/data", "--train-steps", 50]
    assert cloud.submit(ONE, *flags).step() == 50
    log = (cloud.work / "requests.log").read_text()  # what is read through /gcs is not in it
    read = re.findall(rf"GET .*{cloud.bucket}/o/(data%2F[^?]*)\?.*alt=media", log)
    assert len(set(read)) == 600


@pytest.mark.parametrize("how", ["cancelled", "training_cancelled", "launcher_killed"])
def test_a_run_that_is_ended_from_outside_saves_and_leaves_no_machine_running(cloud, how):
    by_time = ["--", "--checkpoint-num-steps", 0, "--checkpoint-secs", 20]
    flags = by_time if how == "launcher_killed" else []
    limits = (
        "scheduling: {max_restarts: 0}" if how == "launcher_killed" else ""
    )  # who cancels wants no other attempt
    process, job, job_dir = cloud.train(SERVERS + limits, "--train-steps", 100_000, *flags)
    if how == "cancelled":
        aiplatform.PipelineJob.get(job["display_name"]).cancel()
    elif how == "training_cancelled":
        aiplatform.CustomJob.get(job["number"]).cancel()
    else:
        cloud.until(lambda: any(path.stat().st_size for path in job_dir.glob("journal-*.jsonl")))
        _assert_few_requests(cloud, job["display_name"], job_dir, replicas=4)
        _kill_launcher(job["display_name"])
    cloud.finish(process, code=1)

    ended = cloud.until(
        lambda: [j for j in cloud.jobs() if j["number"] == job["number"] and not j["running"]]
    )
    assert ended[0]["state"] == "JOB_STATE_CANCELLED"
    assert _journal(job_dir)[-1]["event"] == "preempted" and cloud.steps(job_dir) > 0


def test_lost_launcher_is_no_cancellation(cloud):
    process, job, job_dir = cloud.train(ONE, "--train-steps", 4_000, "--", "--checkpoint-secs", 2)
    _kill_launcher(job["display_name"])
    run = cloud.finish(process)
    assert re.search(r"training: lost, at step \d", run.printed)
    assert [job["state"] for job in run.custom_jobs] == [
        "JOB_STATE_CANCELLED",
        "JOB_STATE_SUCCEEDED",
    ]
    record = json.loads((job_dir / "attempts.json").read_text())
    assert [line["ending"] for line in record] == ["lost", "succeeded"] and record[0]["seconds"] > 0


def test_training_that_the_platform_gives_up_is_submitted_again_and_goes_on(cloud):
    process, job, _ = cloud.train(ONE, "--train-steps", 4_000, "--", "--checkpoint-secs", 2)
    os.kill(
        job["running"]["chief/0"], signal.SIGKILL
    )  # as for want of memory: Vertex AI tries that not again
    run = cloud.finish(process)
    assert re.search(r"training: failed, at step \d", run.printed)
    assert [job["state"] for job in run.custom_jobs] == ["JOB_STATE_FAILED", "JOB_STATE_SUCCEEDED"]
    assert run.step() == 4_000


@pytest.mark.cloud_ci
def test_synchronous_training_goes_on_at_the_next_step_and_ends_with_the_same_weights(cloud):
    flags = ["--train-steps", 2000, "--", "--checkpoint-num-steps", 100]
    undisturbed = cloud.submit(SYNC, *flags)
    process, job, job_dir = cloud.train(SYNC, *flags)
    cloud.take(job, "worker/0", "preempt")
    cloud.until(lambda: cloud.starts(job, "worker/0") == 2)
    saved = cloud.steps(job_dir)
    cloud.until(lambda: cloud.steps(job_dir) > saved)
    cloud.take(job, "worker/0", "lose")
    cloud.finish(process)

    assert cloud.starts(job, "worker/0") == 3
    resumed = [event["step"] for event in _journal(job_dir) if event["event"] == "resume"]
    assert len(resumed) == 2 and all(0 < step < 2000 for step in resumed), resumed
    cloud.assert_same_weights(undisturbed.job_dir, job_dir)


@pytest.mark.parametrize(
    "taken", [{"worker/1": "lose", "worker/0": "preempt"}, {"ps/0": "lose"}, {"chief/0": "lose"}]
)
def test_training_on_parameter_servers_goes_on_when_machines_are_taken(cloud, taken):
    process, job, _ = cloud.train(
        SERVERS, "--train-steps", 1500, "--", "--checkpoint-num-steps", 100
    )
    for replica, how in taken.items():
        cloud.take(job, replica, how)
    run = cloud.finish(process)

    assert run.step() >= 1500 and len(run.custom_jobs) == 1
    for replica in taken:
        # Without ps or chief the others cannot go on, and the whole job starts once more.
        assert 2 <= cloud.starts(job, replica) <= 3
