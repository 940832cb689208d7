"""Tests of replicas that meet and send messages, over real connections."""

import contextlib
import functools
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest

from common.ports import reserved
from trainer.cluster import strategy
from trainer.cluster.control_channel import DONE, LEFT, join
from trainer.cluster.member import Member

SOON_S = 10.0
meet = functools.partial(join, job="new", timeout_s=SOON_S)


@pytest.fixture
def members():
    """A chief and two workers."""
    with reserved(3) as ports:
        chief, *workers = (f"127.0.0.1:{port}" for port in ports)
        addresses = {"chief": (chief,), "worker": tuple(workers)}
        roles = [("chief", 0), ("worker", 0), ("worker", 1)]
        yield [Member(role=role, index=index, addresses=addresses) for role, index in roles]


@pytest.fixture
def channels(members, pool):
    """The ends of their channels."""
    channels = list(pool.map(meet, members))
    yield channels
    for channel in channels:
        cut(channel)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(3) as pool:
        yield pool


def cut(channel):
    for connection in channel._connections:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def chief_at(members):
    host, port = members[0].addresses["chief"][0].split(":")
    return host, int(port)


def test_missing_replicas_are_named(members, pool):
    chief, other, worker = members
    leading, following = (pool.submit(meet, m, timeout_s=1) for m in (chief, worker))
    missing = "^after 1 s these replicas are missing: worker-0$"
    with pytest.raises(TimeoutError, match=missing):
        leading.result()
    with pytest.raises(TimeoutError, match="chief-0"):
        following.result()
    with pytest.raises(TimeoutError, match="chief-0 does not answer at "):
        meet(other, timeout_s=0.5)


def test_strangers_are_sent_away(members, pool, capsys):
    joining = [pool.submit(meet, member) for member in members[:2]]
    host, port = chief_at(members)
    time.sleep(0.5)
    with socket.create_connection((host, port)) as connection:
        connection.sendall(b"\xff\xfeGET / HTTP/1.1\n")
    other = (
        f'at {host}:{port}, the address of chief-0 of job "old", there is the leader of job "new"'
    )
    with pytest.raises(ConnectionError, match=other):
        meet(members[2], job="old")
    meet(members[2])
    assert [future.exception() for future in joining] == [None, None]
    expected = f"worker-1 of another job, old, came to port {port}, and was sent away\n"
    assert capsys.readouterr().out == expected


def test_taken_port_of_leader(members):
    _, port = chief_at(members)
    refusal = f"cannot listen at port {port}, its own: Addr"
    with socket.create_server(("", port)), pytest.raises(ConnectionError, match=refusal):
        meet(members[0])


@pytest.mark.cluster
def test_server_ends_with_new_chief(members, pool):
    """A chief that waits for the others was started again, so a server of before is in the way."""
    stop = mock.Mock()
    following = pool.submit(strategy.follow, members[0].addresses["chief"][0], stop, SOON_S)
    with pytest.raises(TimeoutError):
        meet(members[0], timeout_s=3)
    following.result(timeout=SOON_S / 2)
    assert stop.end.called


@pytest.mark.parametrize("answer", [b'?"new"\n' + LEFT, b"\0\0\x12\4\0"], ids=["message", "grpc"])
def test_answer_with_message_or_of_grpc(members, pool, answer):
    """A message behind the answer is received; a late replica has no connection."""
    with socket.create_server(chief_at(members)) as listener:
        joining = pool.submit(meet, members[1])
        with listener.accept()[0] as connection:
            connection.sendall(answer)
            channel = joining.result()
            is_message = LEFT in answer
            assert channel.received(LEFT, within_s=SOON_S if is_message else 0.05) == is_message


def test_chief_leaves_last(channels, pool):
    left = []

    def leave(channel):
        assert channel.wait_for_end()
        left.append("worker")
        cut(channel)

    chief, *workers = channels
    leaving = [pool.submit(leave, channel) for channel in workers]
    chief.send(DONE)
    chief.wait_for_others()
    assert left == ["worker", "worker"]
    assert [future.result() for future in leaving] == [None, None]


def test_wait_for_lost_chief(channels):
    chief, worker, _ = channels
    cut(chief)
    with pytest.raises(ConnectionError, match="has ended before its results were written"):
        worker.wait_for_end()
