from __future__ import annotations

import json

import pytest

from components.train.cluster import Cluster, Pool
from components.train.plan import plan_processes, port_count, trainer_flags
from trainer.cluster import from_environment
from trainer.errors import UserError

CLUSTER = Cluster(strategy="parameter_server", chief=Pool(), worker=Pool(replicas=2), ps=Pool(), evaluator=Pool())


def plan(cluster: Cluster, cores: int = 8):
    return plan_processes(
        cluster, ["train", "--x"], job_dir="jobs/a", log_dir="logs", ports=range(20_001, 20_100), cores=cores
    )


def test_every_replica_is_told_who_it_is():
    addresses = (
        '{"chief": ["127.0.0.1:20001"], "worker": ["127.0.0.1:20002", "127.0.0.1:20003"], "ps": ["127.0.0.1:20004"]}'
    )
    assert json.loads(plan(CLUSTER).to_json()) == {
        "strategy": "parameter_server",
        "job_dir": "jobs/a",
        "log_dir": "logs",
        "replicas": [
            {
                "role": role,
                "index": index,
                "command": ["train", "--x"],
                "env": {
                    "TRAINER_STATUS": f"logs/{role}-{index}.status.json",
                    "TRAINER_ATTEMPT": "0",
                    "TRAINER_POOL_ROLES": "chief,worker,ps,evaluator",
                    "TRAINER_THREADS": "2",  # 8 cores, and 4 replicas that compute
                    "PYTHONUNBUFFERED": "1",
                    "TF_CONFIG": f'{{"cluster": {addresses}, "task": {{"type": "{role}", "index": {index}}}}}',
                },
                "log": f"logs/{role}-{index}.log",
            }
            for role, index in [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("evaluator", 0)]
        ],
    }


def test_trainer_understands_every_replicas_environment():
    for replica in plan(CLUSTER).replicas:
        member = from_environment(replica.env)
        assert (member.role, member.index) == (replica.role, replica.index)
        assert member.default_strategy == "parameter_server"
        assert "evaluator" not in member.addresses


def test_single_replica_has_no_tf_config_and_needs_no_port():
    cluster = Cluster(strategy="one_device", chief=Pool())
    (chief,) = plan(cluster).replicas
    assert "TF_CONFIG" not in chief.env
    assert chief.env["TRAINER_THREADS"] == "8"
    assert port_count(cluster) == 0


def test_chief_with_an_evaluator_is_more_than_one_replica():
    cluster = Cluster(strategy="one_device", chief=Pool(), evaluator=Pool())
    assert json.loads(plan(cluster).replicas[1].env["TF_CONFIG"])["task"] == {"type": "evaluator", "index": 0}
    assert port_count(cluster) == 1
    assert port_count(CLUSTER) == 4


def test_threads_are_never_zero():
    assert {replica.env["TRAINER_THREADS"] for replica in plan(CLUSTER, cores=1).replicas} == {"1"}


def test_strategy_is_among_the_trainers_flags_once():
    for flags in (["--a"], ["--a", "--strategy", "parameter_server"]):
        assert trainer_flags(CLUSTER, flags) == ["--a", "--strategy", "parameter_server"]


def test_another_strategy_than_the_clusters_is_refused():
    with pytest.raises(UserError, match=r"--strategy mirrored: the cluster file says parameter_server"):
        trainer_flags(CLUSTER, ["--strategy=mirrored"])
