"""Messages between replicas, over real connections, and the file for those who lost theirs."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import memory_store
import pytest
import tensorflow as tf
from etils.epath import backend
from hypothesis import given, settings
from hypothesis import strategies as st

from components.train.backends.process import reserved
from trainer.cluster import shutdown
from trainer.cluster.control_channel import DONE, LEFT, STOP, ControlChannel
from trainer.cluster.member import Member
from trainer.cluster.rendezvous import join_cluster, listens
from trainer.cluster.shutdown import StopRequests

SOON_S = 10.0


def members(ports: tuple[int, ...]) -> list[Member]:
    """A chief and workers at these ports."""
    addresses = {"chief": (f"127.0.0.1:{ports[0]}",), "worker": tuple(f"127.0.0.1:{port}" for port in ports[1:])}
    roles = [("chief", 0), *(("worker", i) for i in range(len(ports) - 1))]
    return [Member(role=role, index=index, addresses=addresses) for role, index in roles]


@contextlib.contextmanager
def met(count: int) -> Iterator[tuple[list[Member], list[ControlChannel]]]:
    """The members of a job, the chief first, and the ends of their channels."""
    with reserved(count) as ports, ThreadPoolExecutor(count) as pool:
        everyone = members(ports)
        channels = list(pool.map(lambda member: join_cluster(member, job="a", timeout_s=SOON_S), everyone))
        yield everyone, channels
        for channel in channels:
            cut(channel)


def cut(channel: ControlChannel, which: slice = slice(None)) -> None:
    for connection in channel._connections[which]:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SOON_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def test_messages_reach_their_peers_only():
    with met(3) as (_, [chief, one, other]):
        assert not chief.received(STOP, within_s=0.05)
        one.send(STOP)
        assert chief.received(STOP, within_s=SOON_S)
        chief.send(DONE)
        assert one.received(LEFT, DONE, within_s=SOON_S)
        assert other.received(DONE, within_s=SOON_S)
        assert not other.received(STOP, LEFT, within_s=0.05)
        assert not any(channel.broken for channel in (chief, one, other))
        for connection in (*chief._connections, *one._connections):
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) and not connection.get_inheritable()


@pytest.mark.parametrize(
    ("answer", "broken"), [(b'?"a"\n' + LEFT, False), (b"\0\0\x12\4\0", True)], ids=["message", "grpc"]
)
def test_answer_with_message_or_of_grpc(answer, broken):
    """A message right behind the answer is received; who comes when the others have met has a broken channel."""
    with reserved(2) as ports, ThreadPoolExecutor(1) as pool:
        _, worker = members(ports)
        with socket.create_server(("127.0.0.1", ports[0])) as listener:
            joining = pool.submit(join_cluster, worker, job="a", timeout_s=SOON_S)
            with listener.accept()[0] as connection:
                connection.sendall(answer)
                channel = joining.result()
                assert channel.broken is broken
                assert channel.received(LEFT, within_s=0.05 if broken else SOON_S) is not broken


def test_job_of_one_has_no_channel():
    channel = join_cluster(Member(role="chief", index=0, addresses={}), job="a", timeout_s=1)
    channel.send(LEFT)
    channel.wait_for_others()
    assert not channel.broken and not channel.received(STOP)


CHIEF = """
import sys
from trainer.cluster.control_channel import STOP
from trainer.cluster.member import Member
from trainer.cluster.rendezvous import join_cluster
addresses = {"chief": (sys.argv[1],), "worker": (sys.argv[2],)}
channel = join_cluster(Member(role="chief", index=0, addresses=addresses), job="a", timeout_s=60)
import tensorflow as tf
cluster = tf.train.ClusterSpec({role: list(hosts) for role, hosts in addresses.items()})
server = tf.distribute.Server(cluster, job_name="chief", task_index=0, protocol="grpc")
print(channel.received(STOP, within_s=60), channel.broken, flush=True)
sys.stdin.read()
"""


@pytest.mark.cluster
def test_channel_survives_takeover_of_port():
    with reserved(2) as ports:
        _, worker = members(ports)
        addresses = [worker.addresses["chief"][0], worker.addresses["worker"][0]]
        chief = subprocess.Popen(
            [sys.executable, "-c", CHIEF, *addresses], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with chief:
            channel = join_cluster(worker, job="a", timeout_s=60)
            deadline = time.monotonic() + 60
            while not listens(addresses[0]):
                assert chief.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
            channel.send(STOP)
            assert chief.stdout.readline() == "True False\n"
            chief.kill()
            assert soon(lambda: channel.broken)
            # A leader that starts again finds its port free, whoever still holds the other end.
            socket.create_server(("127.0.0.1", ports[0])).close()


def test_chief_leaves_last():
    left = []

    def leave_as_worker(channel: ControlChannel) -> None:
        channel.wait_for_end()
        left.append("worker")
        cut(channel)

    with met(3) as (_, [chief, *workers]), ThreadPoolExecutor(2) as pool:
        leaving = [pool.submit(leave_as_worker, channel) for channel in workers]
        chief.send(DONE)
        chief.wait_for_others()
        assert left == ["worker", "worker"]
        assert [future.result() for future in leaving] == [None, None]


def test_wait_for_lost_chief():
    with met(2) as (_, [chief, worker]):
        cut(chief)
        with pytest.raises(ConnectionError, match="the chief has ended before its results were written"):
            worker.wait_for_end()


def test_stop_request_while_store_hangs(store, monkeypatch):
    with met(2) as (_, [channel, other]), ThreadPoolExecutor(1) as pool:
        chief, worker = StopRequests(str(store), channel), StopRequests(str(store), other)
        chief.watch()
        back = threading.Event()

        def hang(*_: object) -> None:
            back.wait(60)
            raise tf.errors.UnavailableError(None, None, "it is away")

        monkeypatch.setattr(backend._TfBackend, "open", hang)
        request = pool.submit(worker.send, "worker-0", lambda: True)
        assert soon(lambda: chief.pending)
        assert not request.done()
        channel.send(LEFT)
        request.result(SOON_S)
        back.set()


WHAT = ("asks", "its end breaks", "the chief's end breaks")
EVENTS = st.permutations([(what, who) for who in (1, 2) for what in WHAT])


@settings(max_examples=max(5, settings.default.max_examples // 10), deadline=None)
@given(events=EVENTS, count=st.integers(1, 6), remote=st.booleans())
def test_stop_requests_in_any_order(events, count, remote, tmp_path_factory):
    """In whichever order channels break and replicas ask, the chief hears of it."""
    events = events[:count]
    with (
        memory_store.mounted() as root,
        mock.patch.multiple(shutdown, _POLL_S=0.01, _POLL_IN_STORE_S=0.02, _POLL_RARELY_S=3600.0, _TICK_S=0.01),
        met(3) as (_, channels),
        ThreadPoolExecutor(2) as pool,
    ):
        directory = str(tmp_path_factory.mktemp("job"))
        job_dir = f"{root}bucket{directory}" if remote else directory
        chief, *others = (StopRequests(job_dir, channel) for channel in channels)
        chief.watch()
        gone, sent = threading.Event(), []
        for what, who in events:
            if what == "asks":
                sent.append(pool.submit(others[who - 1].send, f"worker-{who - 1}", lambda: not gone.is_set()))
            else:
                cut(*((channels[who],) if what == "its end breaks" else (channels[0], slice(who - 1, who))))
        if sent:
            assert soon(lambda: chief.pending), events
        else:
            assert not chief.pending
        channels[0].send(LEFT)
        chief.clear()
        gone.set()
        for request in sent:
            request.result(SOON_S)
        chief._file_seen = True  # its thread ends
