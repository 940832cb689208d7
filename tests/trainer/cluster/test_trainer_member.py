import json

import pytest

from common.errors import UserError
from trainer.cluster.member import Member, from_environment

CHIEF, WORKERS, PS = ["c:2222"], ["w0:2222", "w1:2222"], ["p:2222"]


def tf_config(cluster: dict, role: str, index: int | str = 0) -> dict[str, str]:
    task = {"type": role, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})}


def test_a_single_replica_has_no_variable_and_is_the_chief():
    for environ in ({}, {"TF_CONFIG": ""}, tf_config({"chief": CHIEF}, "chief")):
        me = from_environment(environ)
        assert (me.role, me.index, me.addresses, me.is_chief) == ("chief", 0, {}, True)
        assert me.default_strategy == "one_device"


@pytest.mark.parametrize(
    ("environ", "name", "leads", "strategy"),
    [
        (tf_config({"chief": CHIEF, "worker": WORKERS}, "worker", 1), "worker-1", False, "multi_worker_mirrored"),
        # AI Platform's, which writes the index as text.
        (tf_config({"master": CHIEF, "worker": WORKERS, "ps": PS}, "master", "0"), "chief-0", True, "parameter_server"),
        # Without a chief worker 0 leads.
        (tf_config({"worker": WORKERS}, "worker", 0), "worker-0", True, "multi_worker_mirrored"),
        (tf_config({"worker": WORKERS}, "worker", 1), "worker-1", False, "multi_worker_mirrored"),
    ],
)
def test_every_launcher_says_who_one_is(environ, name, leads, strategy):
    me = from_environment(environ)
    assert (me.name, me.is_chief, me.default_strategy) == (name, leads, strategy)
    assert me.addresses["worker"] == ("w0:2222", "w1:2222")
    assert me.addresses.get("chief") in (None, ("c:2222",))


@pytest.mark.parametrize("cluster", [{"chief": CHIEF, "worker": WORKERS}, {"chief": CHIEF, "evaluator": ["e:2222"]}])
def test_an_evaluator_is_never_in_the_cluster_whether_it_was_named_there_or_not(cluster):
    me = from_environment(tf_config(cluster, "evaluator"))
    assert me.role == "evaluator"
    assert not me.is_chief
    assert "evaluator" not in me.addresses


def test_pools_are_named_by_our_variable_so_pool_1_can_be_parameter_servers():
    spec = {"cluster": {"workerpool0": CHIEF, "workerpool1": PS}, "task": {"type": "workerpool1", "index": 0}}
    # Vertex's own TF_CONFIG takes pool 1 for workers.
    environ = {
        "CLUSTER_SPEC": json.dumps(spec),
        "TRAINER_POOL_ROLES": "chief,ps",
        **tf_config({"chief": CHIEF, "worker": PS}, "worker"),
    }
    me = from_environment(environ)
    assert (me.name, me.addresses) == ("ps-0", {"chief": ("c:2222",), "ps": ("p:2222",)})


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"TF_CONFIG": "{"}, "TF_CONFIG: it cannot be '{': Invalid JSON"),
        ({"TF_CONFIG": "[]"}, r"TF_CONFIG: it cannot be \[\]"),
        (tf_config({"chief": CHIEF}, "boss"), "'boss' is none of master, chief, worker, ps, evaluator"),
        (tf_config({"chief": CHIEF, "worker": WORKERS}, "worker", 2), "worker/2 is not in the cluster"),
        ({"CLUSTER_SPEC": "{}", "TRAINER_POOL_ROLES": "chief"}, "task type 'chief' is none of workerpool0"),
        (tf_config({"chief": CHIEF}, "chief", "first"), r"task\.index cannot be 'first'"),
        (tf_config({"chief": ["c"]}, "chief"), r"cluster\.chief\.0 cannot be 'c'"),
    ],
)
def test_what_cannot_be_understood_is_said(environ, message):
    with pytest.raises(UserError, match=message):
        from_environment(environ)


@pytest.mark.parametrize(
    ("role", "index", "readers"),
    [("chief", 0, 3), ("worker", 0, 3), ("worker", 2, 1), ("evaluator", 0, 1)],
)
def test_the_readers_of_a_machine_are_its_chief_and_workers(role, index, readers):
    addresses = {"chief": ("a:1",), "worker": ("a:2", "a:3", "b:1"), "ps": ("a:4",)}
    assert Member(role=role, index=index, addresses=addresses).readers_here == readers
