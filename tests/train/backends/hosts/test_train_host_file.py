import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.train.backends.hosts.host_file import Host, place, read_hosts, ssh_line
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.keys import Pool
from trainer.base.errors import UserError


def hosts_of(tmp_path: Path, text: str) -> list[Host]:
    (tmp_path / "hosts").write_text(text)
    return read_hosts(str(tmp_path / "hosts"))


def cluster(workers: int, evaluator: bool = False) -> Cluster:
    return Cluster(
        strategy="multi_worker_mirrored",
        chief=Pool(),
        worker=Pool(replicas=workers),
        evaluator=Pool() if evaluator else None,
    )


def test_host_file_as_mxnet_wrote_it(tmp_path: Path):
    text = "# ours\nnode1 slots=2\n\nme@10.0.0.7:2222  # old\nbox port=22 address=box.local\n"
    assert hosts_of(tmp_path, text) == [
        Host(name="node1", address="node1", slots=2),
        Host(name="10.0.0.7", address="10.0.0.7", user="me", port=2222),
        Host(name="box", address="box.local", port=22),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no host in it"),
        ("a\na", "hosts:2: a is there twice"),
        ("a slot=2", "hosts:1: unknown setting 'slot'; did you mean 'slots'?"),
        ("a slots=0", "hosts:1: 'slots=0' is not slots=a whole number"),
        ("a slots", "hosts:1: 'slots' is not slots=a whole number"),
        ("-oProxyCommand=x", "hosts:1: '-oProxyCommand=x' is no host"),
        ("-oProxyCommand=x@a", "hosts:1: '-oProxyCommand=x@a' is no host"),
        ("-v", "hosts:1: '-v' is no host"),
    ],
)
def test_wrong_line_is_named(tmp_path: Path, text: str, says: str):
    with pytest.raises(UserError, match=re.escape(says)):
        hosts_of(tmp_path, text)


@given(slots=st.lists(st.integers(1, 4), min_size=1, max_size=6), workers=st.integers(1, 8))
def test_no_host_gets_more_replicas_than_slots_and_the_chief_is_on_the_first(slots: list[int], workers: int):
    hosts = [Host(name=f"h{i}", address=f"h{i}", slots=n) for i, n in enumerate(slots)]
    if sum(slots) < workers + 1:
        with pytest.raises(UserError, match="add hosts, or slots=N"):
            place(cluster(workers), hosts)
        return
    where = place(cluster(workers), hosts)
    assert len(where) == workers + 1
    assert where["chief", 0] == hosts[0]
    assert all(list(where.values()).count(host) <= host.slots for host in hosts)


def test_replicas_spread_before_hosts_fill_up():
    hosts = [Host(name=name, address=name, slots=2) for name in "ab"]
    assert [host.name for host in place(cluster(2), hosts).values()] == ["a", "b", "a"]


def test_evaluator_is_beside_the_chief_where_it_has_to_see_its_disk():
    hosts = [Host(name="a", address="a", slots=2), Host(name="b", address="b")]
    assert place(cluster(1, evaluator=True), hosts, evaluator_beside_chief=True)["evaluator", 0].name == "a"
    with pytest.raises(UserError, match="write 'b slots=2'"):
        place(cluster(1, evaluator=True), [hosts[1], hosts[0]], evaluator_beside_chief=True)


def test_ssh_never_asks_and_knows_user_and_port():
    line = ssh_line(Host(name="h", address="h", user="me", port=2222), ["ssh", "-i", "key"])
    assert line[:3] == ("ssh", "-i", "key") and "BatchMode=yes" in line
    assert line[-3:] == ("-p", "2222", "me@h")
