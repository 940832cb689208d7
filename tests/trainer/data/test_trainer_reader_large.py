"""A split larger than the memory that training may take for it."""

import os
import pathlib
import re

import pytest
from numbered import dataset
from trainer_jobs import Job

from common.manifest import Manifest

pytestmark = pytest.mark.slow
EXAMPLES = 200_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    directory = tmp_path_factory.mktemp("large") / "data"
    dataset(directory, EXAMPLES, shards=8, shape=(32, 32, 3), classes=10)
    yield directory
    for path in directory.iterdir():
        path.unlink()


def anonymous_bytes(pid: int) -> int:
    """Memory of a process that no file stands behind."""
    status = pathlib.Path(f"/proc/{pid}/status")
    return (
        1024 * int(re.search(r"RssAnon:\s+(\d+) kB", status.read_text())[1])
        if status.exists()
        else 0
    )


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="RssAnon is Linux's")
def test_large_split_trains_in_little_memory(large, tmp_path):
    size = sum(shard.bytes for shard in Manifest.load(large).split("train").shards)
    flags = [
        "--model",
        "numbered:network",
        "--batch-size",
        1000,
        "--checkpoint-num-steps",
        50,
        "--deterministic",
    ]
    flags += ["--train-steps", 600, "--keep-checkpoints", 20]
    straight, killed = Job(large, tmp_path / "straight"), Job(large, tmp_path / "killed")
    straight.run("chief", flags=[*flags, "--reader", "resident"])
    killed.start("chief", flags=[*flags, "--reader", "mapped"])
    peak = 0

    def watched(step: int) -> bool:
        nonlocal peak
        peak = max(peak, anonymous_bytes(killed._replicas["chief-0"].pid))
        return any(e["event"] == "step" and e["step"] >= step for e in killed.events())

    killed.until(lambda: watched(250))
    killed.kill()
    killed.wait()
    killed.run("chief", flags=[*flags, "--reader", "mapped"])
    assert next(e["step"] for e in killed.events() if e["event"] == "resume") in range(200, 600, 50)
    assert straight.digest(600) == killed.digest(600)
    assert peak < size, f"{peak:,} of {size:,} bytes"
