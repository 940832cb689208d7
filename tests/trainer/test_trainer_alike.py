"""Attempts and replicas that differ in what no flag says: hashes of the process, and files."""

import json
import pathlib
import re

import pytest
from trainer_jobs import Job

from common.ports import reserved
from tests.programs import ended, start_python
from tests.root import ROOT

pytestmark = pytest.mark.cluster
FLAGS = "--job-dir job --model from_set:chain --deterministic --threads 1"


def start(data, directory, steps, hash_seed, task=""):
    """Starts a replica in a working directory of its own."""
    directory.mkdir(exist_ok=True)
    environ = {
        "PYTHONPATH": f"{ROOT}:{pathlib.Path(__file__).parent}",
        "PYTHONHASHSEED": str(hash_seed),
        "TF_CONFIG": task,
    }
    command = f"-m trainer.task --data-dir {data} --train-steps {steps} {FLAGS}".split()
    return start_python(*command, cwd=directory, env=environ)


def test_attempts_and_replicas_begin_alike(digits, tmp_path):
    """A job resumed under other hashes ends with the bits of one that never stopped.

    Replicas that have read different checkpoints, of one model, do not go on.
    """
    directories = straight, resumed = tmp_path / "straight", tmp_path / "resumed"
    for directory, steps, hash_seed in ((straight, 10, 1), (resumed, 5, 1), (resumed, 10, 2)):
        ended(start(digits, directory, steps, hash_seed))
    assert Job(digits, resumed / "job").digest(10) == Job(digits, straight / "job").digest(10)

    (resumed / "job/checkpoints/ckpt-10.data-00000-of-00001").write_bytes(b"")
    with reserved(2) as ports:
        cluster, replicas = {"worker": [f"127.0.0.1:{port}" for port in ports]}, []
        for i, directory in enumerate(directories):
            task = {"cluster": cluster, "task": {"type": "worker", "index": i}}
            replicas.append(start(digits, directory, 20, i, json.dumps(task)))
        errors = [ended(replica, 1) for replica in replicas]
    starts = r"worker-0: step 10 of model (\w+), worker-1: step 5 of model \1"
    assert all(re.search(starts, error) for error in errors), errors
