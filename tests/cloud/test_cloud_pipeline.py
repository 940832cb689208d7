"""The whole product on Vertex AI: submit.py's request, run by Google's clients and launchers."""

import json
import os
import re
import signal

import numpy as np
import psutil
import pytest
from google.cloud import aiplatform

from tests.cloud.conftest import ONE
from tests.deploy.calls import NEEDS
from tools.prove_gpu.__main__ import weights

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
SUCCEEDED = "JOB_STATE_SUCCEEDED"
pytestmark = pytest.mark.cloud


def _kill_launcher(run_id):
    """Kills Google's launcher of a run's training."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "CustomJob" in words and any(run_id in word for word in words):
            process.kill()


@pytest.mark.parametrize(
    ("cluster", "store_fails"),
    [
        pytest.param(ONE, False, id="one_chief", marks=[pytest.mark.cloud_ci, pytest.mark.smoke]),
        pytest.param(SERVERS, False, id="servers", marks=pytest.mark.cloud_ci),
        pytest.param(MIRRORED, False, id="mirrored"),
        pytest.param(SERVERS, True, id="failing_store"),
    ],
)
def test_run_ends_with_champion_that_predicts(cloud, versions, cluster, store_fails):
    if store_fails:
        host = r"(storage|www)\.googleapis\.com/.*" + cloud.bucket
        reset = {"match": f"{host}.*", "share": 0.005, "reset": True}
        late = {"match": "models:upload", "late": 13, "times": 1}
        cloud.fail({"match": host, "share": 0.02, "status": 503}, reset, late)
    images = np.random.default_rng(0).integers(0, 17, (70, 8, 8, 1))
    rows = [{"image": image} for image in images.tolist()]
    (cloud.files / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    flags = f"--train-steps 200 --set predict=gs://{cloud.bucket}/rows.jsonl"
    run = cloud.submit(cluster, flags)

    assert run.step() >= 200
    [version] = versions()
    assert {"champion", "default"} <= set(version.version_aliases)
    [results] = run.job_dir.glob("predictions/*/prediction.results-*")
    predictions = [json.loads(line) for line in results.read_text().splitlines()]
    assert [each["instance"] for each in predictions] == rows
    assert all(len(each["prediction"]["probabilities"]) == 10 for each in predictions)
    [job] = run.jobs
    assert job["state"] == SUCCEEDED and not job["running"]
    if not store_fails and cluster == ONE:
        assert cloud.needs() == {name: NEEDS["seen"][name] for name in ("you", "pipeline", "train")}


def test_partial_prediction_ends_run(cloud, versions):
    """A row of the second request is no image, and Google's launcher waits for another state."""
    rows = [{"image": np.zeros((8, 8, 1), int).tolist()}] * 64 + [{"image": "none"}]
    (cloud.files / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    flags = f"--train-steps 100 --set predict=gs://{cloud.bucket}/rows.jsonl"
    run = cloud.finish(cloud.start(ONE, flags), code=1)
    assert "model-batch-predict: partially_succeeded, for which its step would" in run.printed
    assert f"{run.run_id}: cancelled" in run.printed and len(versions()) == 1
    [results] = run.job_dir.glob("predictions/*/prediction.results-*")
    assert len(results.read_text().splitlines()) == 64


@pytest.mark.cloud_ci
def test_rejected_model_gets_no_version(cloud, versions):
    flags = "--train-steps 20 --min-accuracy 0.9999 --fail-on-reject"
    run = cloud.finish(cloud.start(ONE, flags), code=3)
    assert "rejected: accuracy" in run.printed and not versions()


@pytest.mark.parametrize("job_type", [aiplatform.PipelineJob, aiplatform.CustomJob])
def test_cancelled_run_leaves_no_machine(cloud, job_type):
    process, job, job_dir = cloud.train(SERVERS, "--train-steps 100000")
    job_type.get(job["display_name" if job_type is aiplatform.PipelineJob else "number"]).cancel()
    cloud.finish(process, code=1)

    cloud.until(lambda: cloud.now(job)["state"] == "JOB_STATE_CANCELLED")
    assert not cloud.now(job)["running"]
    assert cloud.events(job_dir)[0]["event"] == "preempted" and cloud.steps(job_dir) > 0


@pytest.mark.parametrize("ending", ["lost", "failed"])
def test_lost_or_failed_training_goes_on(cloud, ending):
    """A launcher that is lost is no cancellation; a kill for want of memory fails the job.

    The job of a lost launcher costs nothing any more.
    """
    process, job, _ = cloud.train(ONE, "--train-steps 4000 -- --checkpoint-secs 2")
    if ending == "lost":
        _kill_launcher(job["display_name"])
    else:
        os.kill(job["running"]["chief/0"], signal.SIGKILL)
    run = cloud.finish(process)
    assert re.search(rf"training: {ending}, at step \d", run.printed)
    assert run.attempts() == [ending, "succeeded"] and run.attempts("seconds")[0] > 0
    states = [each["state"] for each in run.jobs]
    assert states == ["JOB_STATE_CANCELLED" if ending == "lost" else "JOB_STATE_FAILED", SUCCEEDED]
    assert run.step() == 4_000 and not run.jobs[0]["running"]


@pytest.mark.cloud_ci
def test_preempted_training_has_same_weights(cloud):
    flags = "--train-steps 2000 -- --checkpoint-num-steps 100"
    undisturbed = cloud.submit(SYNC, flags)
    process, job, job_dir = cloud.train(SYNC, flags)
    cloud.take(job, "worker/0", "preempt")
    cloud.until(lambda: cloud.starts(job, "worker/0") == 2)
    saved = cloud.steps(job_dir)
    cloud.until(lambda: cloud.steps(job_dir) > saved)
    cloud.take(job, "worker/0", "lose")
    cloud.finish(process)

    assert cloud.starts(job, "worker/0") == 3
    resumed = [event["step"] for event in cloud.events(job_dir, "resume")]
    assert len(resumed) == 2 and all(0 < step < 2000 for step in resumed), resumed
    assert weights(undisturbed.job_dir) == weights(job_dir)


@pytest.mark.parametrize(
    "taken", [{"worker/1": "lose", "worker/0": "preempt"}, {"ps/0": "lose"}, {"chief/0": "lose"}]
)
def test_parameter_servers_survive_lost_machines(cloud, taken):
    flags = "--train-steps 1500 -- --checkpoint-num-steps 100"
    process, job, _ = cloud.train(SERVERS, flags)
    for replica, how in taken.items():
        cloud.take(job, replica, how)
    run = cloud.finish(process)

    assert run.step() >= 1500 and len(run.jobs) == 1
    # Without ps or chief the others cannot go on, and the whole job starts once more.
    assert all(2 <= cloud.starts(job, replica) <= 3 for replica in taken)
