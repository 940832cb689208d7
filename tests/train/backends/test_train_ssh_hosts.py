import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from components.train.backends import ssh
from components.train.backends.backend import Job
from components.train.backends.program import Program
from components.train.backends.ssh import Host, place, read_hosts
from components.train.cluster.cluster_file import Cluster, Pool


def hosts_of(tmp_path: Path, text: str) -> list[Host]:
    (tmp_path / "hosts").write_text(text)
    return read_hosts(str(tmp_path / "hosts"))


def host(name: str, slots: int = 1) -> Host:
    return Host(name=name, login=name, slots=slots)


def cluster(workers: int) -> Cluster:
    return Cluster(strategy="multi_worker_mirrored", chief=Pool(), worker=Pool(replicas=workers))


def test_host_file_is_read(tmp_path: Path):
    text = "# ours\nnode1 slots=2\n\nme@10.0.0.7:2222  # old\nbox slots=3\n"
    assert hosts_of(tmp_path, text) == [
        host("node1", slots=2),
        Host(name="10.0.0.7", login="me@10.0.0.7:2222"),
        host("box", slots=3),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\na", "hosts:2: a is named twice"),
        ("a slot=2", "hosts:1: 'a slot=2' is not [user@]name[:port] [slots=N]"),
        ("a address=b", "hosts:1: 'a address=b' is not [user@]name[:port] [slots=N]"),
        ("a slots=0", "hosts:1: 'a slots=0' is not"),
        ("-oProxyCommand=x", "hosts:1: '-oProxyCommand=x' is not"),
        ("-oProxyCommand=x@a", "hosts:1: '-oProxyCommand=x@a' is not"),
    ],
)
def test_wrong_line_is_named(tmp_path: Path, text: str, message: str):
    with pytest.raises(UserError, match=re.escape(message)):
        hosts_of(tmp_path, text)


def test_replicas_start_in_order_of_pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ssh, "ask", lambda commands, _: {name: {"cores": 4, "gpus": []} for name in commands})
    (tmp_path / "hosts").write_text("a slots=2\nb slots=2\n")
    backend = ssh.SshBackend(ssh.SshOptions(hosts=str(tmp_path / "hosts"), remote_python="/py"))
    program = Program(command=("python", "x.py"), job_dir=str(tmp_path / "job"))
    with backend.plan(Job(cluster=cluster(2), program=program)) as plan:
        requests = [json.loads(replica.command[-1]) for replica in plan.replicas]
        config = json.loads(plan.replicas[0].env["TF_CONFIG"])["cluster"]
    assert [replica.name for replica in plan.replicas] == ["chief/0", "worker/0", "worker/1"]
    assert [request["host"] for request in requests] == ["a", "b", "a"]
    assert [address.partition(":")[0] for role in ("chief", "worker") for address in config[role]] == ["a", "b", "a"]
    assert all(request["command"] == ["/py", "x.py"] for request in requests)


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
