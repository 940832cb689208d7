"""Training whose job directory is in a bucket: what kills and a failing store may not change."""

import itertools
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
    words = ["--data-dir", data, "--job-dir", job_dir, "--train-steps", steps, "--deterministic", "--batch-size", 32]
    words += ["--checkpoint-num-steps", 0, "--checkpoint-secs", 1, "--export", "best", "--eval-every-steps", 2000]
    return subprocess.Popen([sys.executable, "-m", "trainer.task", *map(str, [*words, *flags])])


def test_data_and_model_of_a_bucket_make_a_version_of_a_registry_here(cloud, data, tmp_path):
    bucket, registry = f"gs://{cloud.bucket}", tmp_path / "registry"
    shutil.copytree(data, cloud.files / "data")
    assert train(f"{bucket}/data", f"{bucket}/job", "--reader", "streaming", steps=300).wait() == 0
    about = ["--model-dir", f"{bucket}/job/model", "--registry", registry, "--name", "digits"]
    evaluate = ["components.evaluate", "--data-dir", f"{bucket}/data", "--output", f"{bucket}/eval", *about]
    for words in (evaluate, ["components.register", "add", "--evaluation", f"{bucket}/eval/evaluation.json", *about]):
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
            tf.train.load_checkpoint(str(job_dir / "model" / "variables" / "variables"))  # or it is half a model
        if code == 0:
            break

    cloud.assert_same_weights(cloud.files / "undisturbed", job_dir)
