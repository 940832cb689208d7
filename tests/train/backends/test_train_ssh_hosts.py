import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from train_clients import Clients

from common.errors import UserError
from components.train.backends.backend import Job
from components.train.backends.program import Program
from components.train.backends.ssh import Host, SshBackend, SshOptions, place, read_hosts
from components.train.cluster.cluster_file import Cluster, Pool


def host(name: str, slots: int = 1) -> Host:
    return Host(name=name, login=name, slots=slots)


def cluster(workers: int) -> Cluster:
    return Cluster(strategy="multi_worker_mirrored", chief=Pool(), worker=Pool(replicas=workers))


def test_host_file_is_read(tmp_path: Path):
    (tmp_path / "hosts").write_text("# ours\nnode1 slots=2\n\nme@10.0.0.7:2222  # old\n")
    assert read_hosts(str(tmp_path / "hosts")) == [
        host("node1", slots=2),
        Host(name="10.0.0.7", login="me@10.0.0.7:2222"),
    ]


@pytest.mark.parametrize(
    "line", ["a slot=2", "a slots=0", "-oProxyCommand=x", "-oProxyCommand=x@a"]
)
def test_bad_host_line_is_refused(tmp_path: Path, line: str):
    (tmp_path / "hosts").write_text(line)
    with pytest.raises(
        UserError, match=f"hosts:1: '{line}' is not {re.escape('[user@]name[:port] [slots=N]')}"
    ):
        read_hosts(str(tmp_path / "hosts"))


def test_host_named_twice_is_refused(tmp_path: Path):
    (tmp_path / "hosts").write_text("a\na")
    with pytest.raises(UserError, match="hosts:2: a is named twice"):
        read_hosts(str(tmp_path / "hosts"))


def test_replicas_are_planned_on_hosts(clients: Clients):
    (clients.path / "hosts").write_text("a slots=2\nb slots=2\n")
    options = SshOptions(hosts=str(clients.path / "hosts"), remote_python=sys.executable)
    program = Program(command=("python", "x.py"), job_dir=str(clients.path / "job"))
    with SshBackend(options).plan(Job(cluster=cluster(2), program=program)) as plan:
        requests = [json.loads(replica.command[-1]) for replica in plan.replicas]
        addresses = json.loads(plan.replicas[0].env["TF_CONFIG"])["cluster"]
    assert [replica.name for replica in plan.replicas] == ["chief/0", "worker/0", "worker/1"]
    assert [request["host"] for request in requests] == ["a", "b", "a"]
    assert re.findall(r"(\w+):\d", str(addresses)) == ["a", "b", "a"]
    assert all(request["command"] == [sys.executable, "x.py"] for request in requests)


@given(slots=st.lists(st.integers(1, 4), min_size=1, max_size=6), workers=st.integers(1, 8))
def test_slots_bound_replicas_per_host(slots: list[int], workers: int):
    """No host gets more replicas than slots, the chief is on the first host, and hosts take turns."""
    hosts = [host(f"h{i}", n) for i, n in enumerate(slots)]
    if sum(slots) < workers + 1:
        with pytest.raises(UserError, match="add hosts, or slots=N"):
            place(cluster(workers), hosts)
        return
    host_of = list(place(cluster(workers), hosts).values())
    assert len(host_of) == workers + 1
    assert host_of[: len(hosts)] == hosts[: len(host_of)]
    assert all(host_of.count(each) <= each.slots for each in hosts)
