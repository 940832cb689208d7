import re

import pytest

from components.train.backends.ssh import Host, place, read_hosts
from components.train.cluster.cluster_file import Cluster, Pool
from tests.errors import user_error


def cluster(workers):
    return Cluster(strategy="multi_worker_mirrored", chief=Pool(), worker=Pool(replicas=workers))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a slots=0", "'a slots=0' is not [user@]name[:port] [slots=N]"),
        ("-oProxyCommand=x", "'-oProxyCommand=x' is not"),
        ("-oProxyCommand=x@a", "'-oProxyCommand=x@a' is not"),
        ("me@b", "b is named twice"),
    ],
)
def test_bad_host_line_is_refused(tmp_path, line, message):
    (tmp_path / "hosts").write_text(f"b\n{line}")
    with user_error(re.escape(f"hosts:2: {message}")):
        read_hosts(str(tmp_path / "hosts"))


def test_host_file_is_read(tmp_path):
    (tmp_path / "hosts").write_text("# ours\na slots=2\n\nme@10.0.0.7:2222  # old\n")
    assert read_hosts(str(tmp_path / "hosts")) == [
        Host(name="a", login="a", slots=2),
        Host(name="10.0.0.7", login="me@10.0.0.7:2222"),
    ]


def test_slots_bound_replicas_per_host():
    """Hosts take turns, the chief on the first one."""
    one, two = hosts = [Host(name="a", login="a", slots=2), Host(name="b", login="b")]
    assert [*place(cluster(2), hosts).values()] == [one, two, one]
    with user_error("add hosts, or slots=N"):
        place(cluster(3), hosts)
