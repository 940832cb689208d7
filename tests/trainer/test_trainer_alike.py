"""Replicas that differ in what no flag says: their files."""

import json
import re

import pytest

from common.ports import reserved
from tests.programs import ended, start_python

pytestmark = pytest.mark.cluster


def start(data, directory, steps, task=""):
    """Starts a replica in a working directory of its own."""
    directory.mkdir(exist_ok=True)
    command = f"-m trainer.task --data-dir {data} --job-dir job --train-steps {steps}".split()
    return start_python(*command, cwd=directory, env={"TF_CONFIG": task})


def test_replicas_of_other_checkpoints_stop(digits, tmp_path):
    directories = tmp_path / "ten", tmp_path / "five"
    for directory, steps in zip(directories, (10, 5), strict=True):
        ended(start(digits, directory, steps))
    with reserved(2) as ports:
        cluster, replicas = {"worker": [f"127.0.0.1:{port}" for port in ports]}, []
        for i, directory in enumerate(directories):
            task = {"cluster": cluster, "task": {"type": "worker", "index": i}}
            replicas.append(start(digits, directory, 20, json.dumps(task)))
        errors = [ended(replica, 1) for replica in replicas]
    starts = r"worker-0: step 10 of model (\w+), worker-1: step 5 of model \1"
    assert all(re.search(starts, error) for error in errors), errors
