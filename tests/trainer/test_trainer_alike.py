"""Attempts and replicas that differ in what no flag says: the hashes of their process, and the files that they read."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from trainer_jobs import Job

from components.train.backends.process import reserved

HERE = pathlib.Path(__file__).parent
PATHS = {"PYTHONPATH": f"{HERE.parents[1]}:{HERE}"}
TRAIN = (
    "timeout -s KILL 300 python -m trainer.task --job-dir job --model from_set:chain "
    "--deterministic --threads 1"
)


def start(
    data: pathlib.Path, directory: pathlib.Path, steps: int, hash_seed: int, **task
) -> subprocess.Popen:
    """Starts a replica in a working directory of its own."""
    directory.mkdir(exist_ok=True)
    environ = {
        **os.environ,
        **PATHS,
        "PYTHONHASHSEED": str(hash_seed),
        "TF_CONFIG": json.dumps(task),
    }
    command = TRAIN.replace("python", sys.executable).split()
    flags = ["--data-dir", data, "--train-steps", str(steps)]
    return subprocess.Popen(
        [*command, *flags], cwd=directory, env=environ, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.cluster
def test_attempts_and_replicas_begin_alike(digits, tmp_path):
    """A job resumed under other hashes ends with the bits of one that never stopped; two replicas go on from one step."""
    directories = straight, resumed = tmp_path / "straight", tmp_path / "resumed"
    for directory, steps, hash_seed in ((straight, 10, 1), (resumed, 5, 1), (resumed, 10, 2)):
        assert start(digits, directory, steps, hash_seed).wait() == 0
    assert Job(digits, resumed / "job").digest(10) == Job(digits, straight / "job").digest(10)

    (resumed / "job/checkpoints/ckpt-10.data-00000-of-00001").write_bytes(b"")
    with reserved(2) as ports:
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
        tasks = [{"cluster": cluster, "task": {"type": "worker", "index": i}} for i in range(2)]
        replicas = [start(digits, directories[i], 20, i, **tasks[i]) for i in range(2)]
        errors = [replica.communicate()[1] for replica in replicas]
    starts = r"worker-0: step 10 of model (\w+), worker-1: step 5 of model \1"
    assert all(re.search(starts, error) for error in errors), errors
    assert [replica.returncode for replica in replicas] == [1, 1]
