"""Training whose job directory is in a bucket, without a pipeline."""

import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse

import pytest
import tensorflow as tf

from common.manifest import Manifest
from tests.cloud.conftest import IMAGE
from tools.prove_gpu.__main__ import weights

pytestmark = pytest.mark.cloud


@pytest.mark.parametrize("reader", ["resident", "mapped"])
def test_job_reads_bucket_once(cloud, digits, tmp_path, reader):
    """Replicas share one copy of the records; the model becomes a version of a registry here."""
    bucket, cluster = f"gs://{cloud.bucket}", "clusters/vertex-cpu.yaml"
    shutil.copytree(digits, cloud.files / "data")
    cloud.fail({"match": f"{cloud.bucket}.*train-.*tfrecord", "status": 503, "times": 3})
    place = f"--backend vertex --project demo-project --image {IMAGE} --cluster {cluster}"
    flags = f"--train-steps 300 --reader {reader} --cache-dir {tmp_path / 'cache'}"
    data = f"--data-dir {bucket}/data"
    line = f"-m components.train {place} -- {data} --job-dir {bucket}/job {flags}"
    assert "chief/0 | " in cloud.printed(line)
    shards = Manifest.load(digits).split("train").shards
    size = sum(shard.bytes for shard in shards)
    log = urllib.parse.unquote(cloud.log())
    sent = re.findall(rf"/{cloud.bucket}/(?:o/)?data/train-\d+\.tfrecord\?\S* (\d+) 20", log)
    # The chief tries the model on some examples, and reads the beginning of their file twice.
    assert size <= sum(map(int, sent)) <= size + 2 * shards[0].bytes

    model = f"--model-dir {bucket}/job/model --registry {tmp_path} --name digits"
    cloud.printed(f"-m components.evaluate {data} --output {bucket}/eval {model}")
    cloud.printed(f"-m components.register add --evaluation {bucket}/eval/evaluation.json {model}")
    assert (tmp_path / "digits" / "1" / "saved_model.pb").is_file()


@pytest.mark.cloud_ci
def test_mount_notes_what_disks_do(cloud):
    """In the bucket of no test, as a note fails the test that it is of."""
    name = f"/gcs/demo/{cloud.bucket}"
    program = f"import fcntl, os; open('{name}', 'w').close(); os.rename('{name}', '{name}-2'); "
    program += f"fcntl.flock(open('{name}-2', 'a'), fcntl.LOCK_EX)"
    subprocess.run([sys.executable, "-c", program], check=True)
    noted = re.findall(rf"(\S+) {name}", (cloud.work / "mount.log").read_text())
    assert noted == ["os.rename", "os.rename", "open", "fcntl.flock"]


def test_kills_and_failing_store_change_nothing(cloud, digits):
    """No bit of the weights changes, no checkpoint is lost, and no model is half there."""
    line = f"-m trainer.task --data-dir {digits} --train-steps 20000 --deterministic "
    line += "--batch-size 32 --checkpoint-num-steps 0 --checkpoint-secs 1 --export best "
    line += f"--eval-every-steps 2000 --job-dir gs://{cloud.bucket}"

    def train(name):
        return subprocess.Popen([sys.executable, *f"{line}/{name}".split()])

    assert train("undisturbed").wait() == 0
    job_dir, chance = cloud.files / "job", random.Random(0)
    cloud.fail({"match": f"googleapis.com/.*{cloud.bucket}", "share": 0.02, "status": 503})

    kills, newest, code = int(os.environ.get("KILLS", "30")), -1, None
    for attempt in itertools.count():
        process = train("job")
        if attempt < kills and not (job_dir / "DONE.json").exists():
            time.sleep(chance.uniform(3, 9))  # the first of them go by until TensorFlow is there
            process.send_signal(signal.SIGTERM)
            time.sleep(chance.uniform(0, 1))
            process.kill()
        code = process.wait()
        assert code in (0, 143, -signal.SIGKILL), f"attempt {attempt} ended with {code}"
        assert cloud.steps(job_dir) >= newest, "a checkpoint is gone"
        newest = cloud.steps(job_dir)
        if (model := job_dir / "model" / "saved_model.pb").exists():
            tf.train.load_checkpoint(str(model.with_name("variables") / "variables"))
        if code == 0:
            break

    assert weights(cloud.files / "undisturbed") == weights(job_dir)
