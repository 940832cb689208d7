from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from components.train.backends.plan import Plan
from components.train.backends.processes import plan_processes
from components.train.backends.program import Program
from components.train.backends.resources import divide
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.keys import Pool

CLUSTER = Cluster(strategy="parameter_server", chief=Pool(), worker=Pool(replicas=2), ps=Pool(), evaluator=Pool())
OURS = Program(command=("train", "--x"), env={"MORE": "1"}, job_dir="jobs/a", reports=True)


def plan(cluster: Cluster, program: Program = OURS, gpus: tuple[str, ...] = ()) -> Plan:
    division = divide(cluster, cores=8, gpus=gpus)
    return plan_processes(cluster, program, log_dir="logs", ports=range(20_001, 20_100), division=division)


def test_every_replica_is_told_who_it_is():
    told = json.loads(plan(CLUSTER).to_json())
    assert (told["strategy"], told["job_dir"], told["log_dir"]) == ("parameter_server", "jobs/a", "logs")
    assert told["notes"] == ["cores: 8, replicas that compute: 4, threads of each: 2"]
    addresses = {"chief": [20_001], "worker": [20_002, 20_003], "ps": [20_004]}
    cluster = {role: [f"127.0.0.1:{port}" for port in ports] for role, ports in addresses.items()}
    who = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("evaluator", 0)]
    for replica, (role, index) in zip(told["replicas"], who, strict=True):
        status = os.path.abspath(f"logs/{role}-{index}.status.json")
        assert replica == {
            "role": role,
            "index": index,
            "command": ["train", "--x"],
            "env": {
                "MORE": "1",
                "TRAINER_THREADS": "2",  # 8 cores, and 4 replicas that compute
                "TRAINER_STATUS": status,
                "TRAINER_POOL_ROLES": "chief,worker,ps,evaluator",
                "PYTHONUNBUFFERED": "1",
                "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": role, "index": index}}),
            },
            "log": f"logs/{role}-{index}.log",
            "status": status,
            "cleanup": [],
        }


@pytest.mark.cluster
@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_trainer_starts_no_thread_before_it_can_block_sigterm():
    """A library's thread that does not block it lets the signal end the replica before anything is saved."""
    code = "import os, sys, trainer.task; sys.exit(len(os.listdir('/proc/self/task')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 1


def test_chief_alone_has_no_tf_config_and_with_an_evaluator_it_has():
    (chief,) = plan(Cluster(strategy="one_device", chief=Pool())).replicas
    assert "TF_CONFIG" not in chief.env
    cluster = Cluster(strategy="one_device", chief=Pool(), evaluator=Pool())
    assert json.loads(plan(cluster).replicas[1].env["TF_CONFIG"])["task"] == {"type": "evaluator", "index": 0}
