"""Messages between replicas, over real connections."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from components.train.backends.process import reserved
from trainer.cluster.control_channel import DONE, LEFT, STOP, ControlChannel, first_byte, join
from trainer.cluster.member import Member

SOON_S = 10.0


def members(ports: tuple[int, ...]) -> list[Member]:
    """A chief and workers at these ports."""
    addresses = {
        "chief": (f"127.0.0.1:{ports[0]}",),
        "worker": tuple(f"127.0.0.1:{port}" for port in ports[1:]),
    }
    roles = [("chief", 0), *(("worker", i) for i in range(len(ports) - 1))]
    return [Member(role=role, index=index, addresses=addresses) for role, index in roles]


@contextlib.contextmanager
def met(count: int) -> Iterator[tuple[list[Member], list[ControlChannel]]]:
    """The members of a job, the chief first, and the ends of their channels."""
    with reserved(count) as ports, ThreadPoolExecutor(count) as pool:
        everyone = members(ports)
        channels = list(pool.map(lambda member: join(member, job="a", timeout_s=SOON_S), everyone))
        yield everyone, channels
        for channel in channels:
            cut(channel)


def cut(channel: ControlChannel) -> None:
    for connection in channel._connections:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def test_messages_reach_their_peers_only():
    with met(3) as (_, [chief, one, other]):
        assert not chief.received(STOP, within_s=0.05)
        one.send(STOP)
        assert chief.received(STOP, within_s=SOON_S)
        chief.send(DONE)
        assert one.received(LEFT, DONE, within_s=SOON_S)
        assert other.received(DONE, within_s=SOON_S)
        assert not other.received(STOP, LEFT, within_s=0.05)
        for connection in (*chief._connections, *one._connections):
            assert (
                connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                and not connection.get_inheritable()
            )


@pytest.mark.parametrize("answer", [b'?"a"\n' + LEFT, b"\0\0\x12\4\0"], ids=["message", "grpc"])
def test_answer_with_message_or_of_grpc(answer):
    """A message right behind the answer is received; who comes when the others have met has no connection."""
    with reserved(2) as ports, ThreadPoolExecutor(1) as pool:
        _, worker = members(ports)
        with socket.create_server(("127.0.0.1", ports[0])) as listener:
            joining = pool.submit(join, worker, job="a", timeout_s=SOON_S)
            with listener.accept()[0] as connection:
                connection.sendall(answer)
                channel = joining.result()
                is_message = LEFT in answer
                assert channel.received(LEFT, within_s=SOON_S if is_message else 0.05) == is_message


def test_job_of_one_has_no_channel():
    channel = join(Member(role="chief", index=0, addresses={}), job="a", timeout_s=1)
    channel.send(LEFT)
    channel.wait_for_others()
    assert not channel.received(STOP)


CHIEF = """
import sys
from trainer.cluster.control_channel import STOP, join
from trainer.cluster.member import Member
addresses = {"chief": (sys.argv[1],), "worker": (sys.argv[2],)}
channel = join(Member(role="chief", index=0, addresses=addresses), job="a", timeout_s=60)
import tensorflow as tf
cluster = tf.train.ClusterSpec({role: list(hosts) for role, hosts in addresses.items()})
server = tf.distribute.Server(cluster, job_name="chief", task_index=0, protocol="grpc")
print(channel.received(STOP, within_s=60), flush=True)
sys.stdin.read()
"""


@pytest.mark.cluster
def test_channel_survives_takeover_of_port():
    with reserved(2) as ports:
        _, worker = members(ports)
        addresses = [worker.addresses["chief"][0], worker.addresses["worker"][0]]
        chief = subprocess.Popen(
            [sys.executable, "-c", CHIEF, *addresses],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with chief:
            channel = join(worker, job="a", timeout_s=60)
            deadline = time.monotonic() + 60
            while not first_byte(addresses[0]) is not None:
                assert chief.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
            channel.send(STOP)
            assert chief.stdout.readline() == "True\n"
            chief.kill()
            with pytest.raises(ConnectionError):
                channel.wait_for_end()
            # A leader that starts again finds its port free, whoever still holds the other end.
            socket.create_server(("127.0.0.1", ports[0])).close()


def test_chief_leaves_last():
    left = []

    def leave_as_worker(channel: ControlChannel) -> None:
        assert channel.wait_for_end()
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
        with pytest.raises(
            ConnectionError, match="the chief has ended before its results were written"
        ):
            worker.wait_for_end()
