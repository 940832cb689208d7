"""Training whose job directory is in a bucket, without a pipeline."""

import re
import shutil
import urllib.parse

import pytest

from common.manifest import Manifest
from tests.cloud.conftest import IMAGE

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
