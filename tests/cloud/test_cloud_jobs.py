"""Training whose job directory is in a bucket, without a pipeline."""

import os
import random
import re
import shutil
import signal
import time
import urllib.parse

import pytest

from common.manifest import Manifest
from tests.cloud.conftest import IMAGE
from tests.programs import start_python
from tools.prove_gpu.__main__ import weights

pytestmark = pytest.mark.cloud


def test_job_reads_bucket_once(cloud, digits, tmp_path):
    """Replicas share one copy of the records."""
    bucket, cluster = f"gs://{cloud.bucket}", "clusters/vertex-cpu.yaml"
    shutil.copytree(digits, cloud.files / "data")
    cloud.fail({"match": f"{cloud.bucket}.*train-.*tfrecord", "status": 503, "times": 3})
    place = f"--backend vertex --project demo-project --image {IMAGE} --cluster {cluster}"
    flags = f"--train-steps 300 --cache-dir {tmp_path / 'cache'}"
    data = f"--data-dir {bucket}/data"
    line = f"-m components.train {place} -- {data} --job-dir {bucket}/job {flags}"
    assert "chief/0 | " in cloud.printed(line)
    shards = Manifest.load(digits).split("train").shards
    size = sum(shard.bytes for shard in shards)
    log = urllib.parse.unquote(cloud.log())
    sent = re.findall(rf"/{cloud.bucket}/(?:o/)?data/train-\d+\.tfrecord\?\S* (\d+) 20", log)
    # The chief tries the model on some examples, and reads the beginning of their file twice.
    assert size <= sum(map(int, sent)) <= size + 2 * shards[0].bytes


def test_kills_and_failing_store_change_nothing(cloud, digits):
    """No bit of the weights changes, no checkpoint is lost, and no model is half there."""
    line = f"-m trainer.task --data-dir {digits} --train-steps 20000 --deterministic "
    line += "--batch-size 32 --checkpoint-num-steps 0 --checkpoint-secs 1 --export best "
    line += f"--eval-every-steps 2000 --job-dir gs://{cloud.bucket}"

    def train(name):
        return start_python(*f"{line}/{name}".split(), stdout=None)

    assert train("undisturbed").wait() == 0
    job_dir, chance = cloud.files / "job", random.Random(0)
    cloud.fail({"match": f"googleapis.com/.*{cloud.bucket}", "share": 0.02, "status": 503})
    newest = -1
    for _ in range(int(os.environ.get("KILLS", "30"))):
        process = train("job")
        time.sleep(chance.uniform(3, 9))  # The first of them go by until TensorFlow is there.
        process.terminate()
        time.sleep(chance.uniform(0, 1))
        process.kill()
        assert process.wait() in (0, 143, -signal.SIGKILL)
        assert cloud.steps(job_dir) >= newest, "a checkpoint is gone"
        newest = cloud.steps(job_dir)
        if (job_dir / "model" / "saved_model.pb").exists():
            assert weights(job_dir)
    assert train("job").wait() == 0
    assert weights(cloud.files / "undisturbed") == weights(job_dir)
