import json

import pytest

from common.errors import UserError
from trainer.cluster.member import Member, from_environment

CHIEF, WORKERS, PS = ["c:2222"], ["w0:2222", "w1:2222"], ["p:2222"]
BOTH = {"chief": CHIEF, "worker": WORKERS}
MULTI_WORKER = "multi_worker_mirrored"


def tf_config(cluster, role, index=0):
    task = {"type": role, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})}


@pytest.mark.parametrize(
    ("cluster", "task", "name", "leads", "strategy"),
    [
        ({}, ("chief",), "chief-0", True, "one_device"),
        ({"chief": CHIEF}, ("chief",), "chief-0", True, "one_device"),
        (BOTH, ("worker", 1), "worker-1", False, MULTI_WORKER),
        # AI Platform's, which writes the index as text.
        ({"master": CHIEF, "ps": PS}, ("master", "0"), "chief-0", True, "parameter_server"),
        # Without a chief worker 0 leads.
        ({"worker": WORKERS}, ("worker",), "worker-0", True, MULTI_WORKER),
        ({"worker": WORKERS}, ("worker", 1), "worker-1", False, MULTI_WORKER),
        # An evaluator is never in the cluster.
        ({**BOTH, "evaluator": PS}, ("evaluator",), "evaluator-0", False, MULTI_WORKER),
    ],
)
def test_member_follows_environment(cluster, task, name, leads, strategy):
    me = from_environment(tf_config(cluster, *task))
    assert (me.name, me.is_chief, me.default_strategy) == (name, leads, strategy)
    assert me.addresses.get("chief") in (None, ("c:2222",))
    assert me.addresses.get("worker") in (None, ("w0:2222", "w1:2222"))
    assert "evaluator" not in me.addresses


def test_pool_roles_take_precedence():
    """Pool 1 can be parameter servers, which Vertex AI's own TF_CONFIG takes for workers."""
    task = {"type": "workerpool1", "index": 0}
    spec = {"cluster": {"workerpool0": CHIEF, "workerpool1": PS}, "task": task}
    environ = {"CLUSTER_SPEC": json.dumps(spec), "TRAINER_POOL_ROLES": "chief,ps"}
    me = from_environment(environ | tf_config({"chief": CHIEF, "worker": PS}, "worker"))
    assert (me.name, me.addresses) == ("ps-0", {"chief": ("c:2222",), "ps": ("p:2222",)})


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"TF_CONFIG": "{"}, "TF_CONFIG: it cannot be '{': Invalid JSON"),
        (tf_config({"chief": CHIEF}, "boss"), "'boss' is none of master, chief, worker, ps"),
        (tf_config(BOTH, "worker", 2), "worker/2 is not in the cluster"),
        (tf_config({"chief": ["c"]}, "chief"), r"cluster\.chief\.0 cannot be 'c'"),
    ],
)
def test_wrong_environment_is_error(environ, message):
    with pytest.raises(UserError, match=message):
        from_environment(environ)


@pytest.mark.parametrize(("role", "index", "readers"), [("worker", 0, 3), ("worker", 2, 1)])
def test_readers_exclude_parameter_servers(role, index, readers):
    addresses = {"chief": ("a:1",), "worker": ("a:2", "a:3", "b:1"), "ps": ("a:4",)}
    assert Member(role=role, index=index, addresses=addresses).readers_here == readers
