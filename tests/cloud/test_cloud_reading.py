"""What training reads of a dataset in a bucket: each byte is in the journals, and the store's own log agrees."""

import json
import re
import urllib.parse

import pytest

from components.convert.convert import convert
from components.convert.options import Options
from trainer.base.manifest import HEAD_BYTES

pytestmark = pytest.mark.cloud
REPLICAS = 2


def _sent(cloud, name: str) -> list[int]:
    """Bytes of each answer that the store gave to who asked for such files of the dataset."""
    log = urllib.parse.unquote((cloud.work / "requests.log").read_text())
    return [int(size) for size in re.findall(rf"GET \S+/{cloud.bucket}/(?:o/)?data/{name}\?\S* (\d+) 20", log)]


@pytest.mark.parametrize("mode", ["resident", "mapped", "streaming"])
def test_the_journals_count_what_the_store_has_sent(cloud, tmp_path, mode):
    manifest = convert(Options(dataset="digits", output=str(cloud.files / "data"), shards=2))
    (cluster := tmp_path / "cluster.yaml").write_text(
        "{strategy: multi_worker_mirrored, chief: {}, worker: {replicas: 1}}"
    )
    cloud.fail({"match": f"{cloud.bucket}.*tfrecord.*alt=media", "status": 503, "times": 3})
    words = ["-m", "components.train", "--cluster", cluster, "--", "--data-dir", f"gs://{cloud.bucket}/data"]
    words += ["--job-dir", tmp_path / "job", "--train-steps", 30, "--reader", mode, "--cache-dir", tmp_path / "cache"]
    printed = (process := cloud.run(*words)).communicate(timeout=300)[0]
    assert process.returncode == 0, printed
    lines = [json.loads(line) for path in (tmp_path / "job").glob("journal-*") for line in path.open()]
    done = [line for line in lines if line["event"] == "done"]
    assert len(done) == REPLICAS and all("data_bytes_read" in line for line in lines if line["event"] == "usage")

    shards = manifest.split("train").shards
    size, heads = sum(shard.bytes for shard in shards), sum(min(shard.bytes, HEAD_BYTES) for shard in shards)
    of_train = sum(_sent(cloud, r"train-\d+-of-\d+\.tfrecord"))
    counted = sum(line["data_bytes_read"] for line in done)
    least = size if mode == "mapped" else REPLICAS * size
    # The chief tries the model on some examples, and files that are not read whole are known by their heads.
    assert least <= of_train <= least + shards[0].bytes + REPLICAS * heads * (mode == "streaming")
    if mode == "mapped":  # of the copies too
        assert counted > of_train
    else:
        assert counted == sum(_sent(cloud, r"(?:train|validation)-\d+-of-\d+\.\w+"))
        assert sum(line["data_retries"] for line in done) == 3
