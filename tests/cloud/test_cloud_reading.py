"""Training data in a bucket: what the store's own log says of how often it was read."""

import re
import urllib.parse

import pytest

from components.convert.convert import convert
from components.convert.options import Options

pytestmark = pytest.mark.cloud


def _sent(cloud, name: str) -> list[int]:
    """Bytes of each answer that the store gave to who asked for such files of the dataset."""
    log = urllib.parse.unquote((cloud.work / "requests.log").read_text())
    return [
        int(size)
        for size in re.findall(rf"GET \S+/{cloud.bucket}/(?:o/)?data/{name}\?\S* (\d+) 20", log)
    ]


@pytest.mark.parametrize("mode", ["resident", "mapped"])
def test_bucket_sends_training_files_once(cloud, tmp_path, mode):
    manifest = convert(Options(dataset="digits", output=str(cloud.files / "data"), shards=2))
    (cluster := tmp_path / "cluster.yaml").write_text(
        "{strategy: multi_worker_mirrored, chief: {}, worker: {replicas: 1}}"
    )
    cloud.fail({"match": f"{cloud.bucket}.*train-.*tfrecord", "status": 503, "times": 3})
    words = [
        "-m",
        "components.train",
        "--cluster",
        cluster,
        "--",
        "--data-dir",
        f"gs://{cloud.bucket}/data",
    ]
    words += [
        "--job-dir",
        tmp_path / "job",
        "--train-steps",
        30,
        "--reader",
        mode,
        "--cache-dir",
        tmp_path / "cache",
    ]
    printed = (process := cloud.run(*words)).communicate(timeout=300)[0]
    assert process.returncode == 0, printed
    shards = manifest.split("train").shards
    size = sum(shard.bytes for shard in shards)
    # The replicas share a copy. The chief tries the model on some examples, and reads the beginning
    # of their file twice.
    assert size <= sum(_sent(cloud, r"train-\d+\.tfrecord")) <= size + 2 * shards[0].bytes
