"""Training whose job directory is in a bucket: what kills and a failing store may not change."""

import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from components.convert.convert import convert
from components.convert.options import Options

pytestmark = pytest.mark.cloud
STEPS = 20_000


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    convert(Options(dataset="digits", output=str(tmp_path / "data"), shards=2))
    return tmp_path / "data"


def train(data: object, job_dir: str, *flags: object, steps: int = STEPS) -> subprocess.Popen:
    words = [
        "--data-dir",
        data,
        "--job-dir",
        job_dir,
        "--train-steps",
        steps,
        "--deterministic",
        "--batch-size",
        32,
    ]
    words += [
        "--checkpoint-num-steps",
        0,
        "--checkpoint-secs",
        1,
        "--export",
        "best",
        "--eval-every-steps",
        2000,
    ]
    return subprocess.Popen([sys.executable, "-m", "trainer.task", *map(str, [*words, *flags])])


def test_data_and_model_of_a_bucket_make_a_version_of_a_registry_here(cloud, data, tmp_path):
    bucket, registry = f"gs://{cloud.bucket}", tmp_path / "registry"
    shutil.copytree(data, cloud.files / "data")
    assert train(f"{bucket}/data", f"{bucket}/job", "--reader", "mapped", steps=300).wait() == 0
    about = ["--model-dir", f"{bucket}/job/model", "--registry", registry, "--name", "digits"]
    evaluate = [
        "components.evaluate",
        "--data-dir",
        f"{bucket}/data",
        "--output",
        f"{bucket}/eval",
        *about,
    ]
    for words in (
        evaluate,
        ["components.register", "add", "--evaluation", f"{bucket}/eval/evaluation.json", *about],
    ):
        printed = (process := cloud.run("-m", *words)).communicate()[0]
        assert not process.returncode, printed
    assert (registry / "digits" / "1" / "saved_model.pb").is_file()


def test_kills_and_a_failing_store_change_no_bit_and_lose_no_checkpoint(cloud, data):
    undisturbed = f"gs://{cloud.bucket}/undisturbed"
    assert train(data, undisturbed).wait() == 0
    job_dir, chance = cloud.files / "job", random.Random(0)
    cloud.fail({"match": f"googleapis.com/.*{cloud.bucket}", "share": 0.02, "status": 503})

    kills, newest = 0, -1
    for moment in itertools.count():
        process = train(data, f"gs://{cloud.bucket}/job")
        if kills < int(os.environ.get("KILLS", "30")) and not (job_dir / "DONE.json").exists():
            time.sleep(chance.uniform(3, 9))  # the first of them go by until TensorFlow is there
            process.send_signal(signal.SIGTERM)
            time.sleep(chance.uniform(0, 1))
            process.kill()
            kills += 1
        code = process.wait()
        assert code in (0, 143, -signal.SIGKILL), f"attempt {moment} ended with {code}"
        assert cloud.steps(job_dir) >= newest, "a checkpoint is gone"
        newest = cloud.steps(job_dir)
        if (job_dir / "model" / "saved_model.pb").exists():
            tf.train.load_checkpoint(
                str(job_dir / "model" / "variables" / "variables")
            )  # or it is half a model
        if code == 0:
            break

    cloud.assert_same_weights(cloud.files / "undisturbed", job_dir)


def submit(cloud, cluster: str, flags: list[object], *options: object) -> subprocess.Popen:
    """One custom job, which is followed; its job directory is `job`."""
    (file := cloud.work / f"{cloud.bucket}.yaml").write_text(cluster)
    image = f"us-docker.pkg.dev/demo-project/training/image@sha256:{'0' * 64}"
    words = [
        "--backend",
        "vertex",
        "--cluster",
        file,
        "--project",
        "demo-project",
        "--image",
        image,
    ]
    return cloud.run("-m", "components.train", *words, *options, "--", *flags)


@pytest.fixture
def flags(cloud, data) -> list[object]:
    shutil.copytree(data, cloud.files / "data")
    words = [
        "--data-dir",
        f"gs://{cloud.bucket}/data",
        "--job-dir",
        f"gs://{cloud.bucket}/job",
        "--batch-size",
        32,
    ]
    return [*words, "--checkpoint-secs", 1]


def attempts(cloud) -> list[dict]:
    return json.loads((cloud.files / "job" / "attempts.json").read_text())


def test_machine_hours_end_a_job_whose_spot_machines_are_taken_again_and_again(cloud, flags):
    cap_s, job_dir = 150, cloud.files / "job"
    cluster = (
        "{strategy: one_device, chief: {machine: n1-standard-4}, scheduling: {strategy: SPOT}}"
    )
    hours = ["--max-machine-hours", cap_s / 3600]
    process = submit(cloud, cluster, [*flags, "--train-steps", 10_000_000], *hours)

    def live() -> list[dict]:
        ours = [
            job
            for job in cloud.jobs()
            if job["output"] == f"gs://{cloud.bucket}/job" and job["running"]
        ]
        return ours or ([{}] if process.poll() is not None else [])

    for _ in range(3):
        before, [job] = cloud.steps(job_dir), cloud.until(live)
        if job and cloud.until(
            lambda before=before: cloud.steps(job_dir) > before or live() == [{}]
        ):
            cloud.take(job, "chief/0", "preempt", last=1)
            cloud.until(lambda job=job: job["number"] not in [now.get("number") for now in live()])
    printed = process.communicate(timeout=600)[0]
    assert process.returncode == 124 and "(--max-machine-hours) are used up" in printed, printed
    lines, used_s = attempts(cloud), 0.0
    assert [line["ending"] for line in lines[:2]] == ["stockout", "stockout"]
    for line in lines:
        assert used_s <= cap_s - 10 and line["timeout_s"] == int(cap_s - used_s)
        assert line["step_before"] < line["step_after"] or line is lines[-1]
        used_s += line["seconds"]
    assert cap_s - 10 < used_s < cap_s + 45  # what is told to stop has half a minute


def test_failure_ends_with_the_replica_and_the_line(cloud):
    code = (
        "import json, os, sys, time; worker = json.loads(os.environ['TF_CONFIG'])['task']['type'] "
        "== 'worker'; "
        "print('the disk is full' if worker else 'well', flush=True); time.sleep(2 if worker else "
        "60); sys.exit(3)"
    )
    pool = "{machine: n1-standard-4}"
    cluster = f"{{strategy: multi_worker_mirrored, chief: {pool}, worker: {pool}}}"
    process = submit(
        cloud,
        cluster,
        [],
        "--job-dir",
        f"gs://{cloud.bucket}/job",
        "--command",
        f'python -c "{code}"',
    )
    printed = process.communicate(timeout=300)[0]
    last = printed.partition("launcher | worker/0 failed first: The replica workerpool1-0 exited")[
        2
    ].splitlines()
    assert process.returncode == 3 and last[1:] == ["launcher |   the disk is full"], printed
    assert "chief/0 | well" in printed
