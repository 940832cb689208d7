import contextlib
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest
import tensorflow as tf

from components.train.backends.process import reserved
from trainer.cluster import strategy
from trainer.cluster.control_channel import join
from trainer.cluster.member import Member

pytestmark = pytest.mark.cluster


@pytest.fixture
def members():
    with reserved(3) as ports:
        addresses = {
            "chief": (f"127.0.0.1:{ports[0]}",),
            "worker": tuple(f"127.0.0.1:{p}" for p in ports[1:]),
        }
        roles = [("chief", 0), ("worker", 0), ("worker", 1)]
        yield [Member(role=role, index=index, addresses=addresses) for role, index in roles]


def together(calls: dict[str, object]) -> dict[str, BaseException | None]:
    """Runs all at once; what each raised."""
    with ThreadPoolExecutor(len(calls)) as pool:
        done = {name: pool.submit(call) for name, call in calls.items()}
        return {name: future.exception(20) for name, future in done.items()}


@pytest.mark.parametrize("late", [0, 2])
def test_join_waits_for_last_replica(members, late):
    came: list[float] = []

    def come(index: int) -> None:
        time.sleep(0.5 if index == late else 0)
        came.append(time.monotonic())
        join(members[index], job="a", timeout_s=10)
        assert time.monotonic() >= max(came)
        assert len(came) == 3

    outcomes = together({str(i): (lambda i=i: come(i)) for i in range(3)})
    assert outcomes == {"0": None, "1": None, "2": None}
    # The leader's port is free at once: TensorFlow takes it over.
    host, port = members[0].addresses["chief"][0].split(":")
    socket.create_server((host, int(port))).close()


def test_missing_replicas_are_named(members):
    outcomes = together(
        {str(i): (lambda i=i: join(members[i], job="a", timeout_s=1)) for i in (0, 2)}
    )
    assert isinstance(outcomes["0"], TimeoutError)
    assert str(outcomes["0"]) == "after 1 s these replicas are missing: worker-0"
    assert isinstance(outcomes["2"], TimeoutError)
    assert "chief-0" in str(outcomes["2"])
    with pytest.raises(
        TimeoutError, match=rf"chief-0 does not answer at {members[0].addresses['chief'][0]}"
    ):
        join(members[1], job="a", timeout_s=0.5)


def test_stranger_and_other_job_on_port(members, capsys):
    host, port = members[0].addresses["chief"][0].split(":")

    def stranger() -> None:
        time.sleep(0.2)
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"\xff\xfeGET / HTTP/1.1\n")

    def foreign() -> None:
        time.sleep(0.3)  # after worker 0 of the right job
        join(members[2], job="jobs/old", timeout_s=10)

    def late() -> None:
        time.sleep(1)
        join(members[2], job="jobs/new", timeout_s=10)

    calls = {str(i): (lambda i=i: join(members[i], job="jobs/new", timeout_s=10)) for i in (0, 1)}
    outcomes = together({**calls, "stranger": stranger, "foreign": foreign, "late": late})
    told = outcomes.pop("foreign")
    assert set(outcomes.values()) == {None} and isinstance(told, ConnectionError)
    assert str(told).startswith(
        f'at {host}:{port}, the address of chief-0 of job "jobs/old", there is the leader of job '
        '"jobs/new"'
    )
    told = f"worker-1 of another job, jobs/old, came to port {port}, and was sent away\n"
    assert capsys.readouterr().out == told


def test_taken_port_of_leader(members):
    port = int(members[0].addresses["chief"][0].split(":")[1])
    told = f"cannot listen at port {port}, its own: Addr"
    with socket.create_server(("", port)), pytest.raises(ConnectionError, match=told):
        join(members[0], job="a", timeout_s=1)


def test_lost_replicas_are_named(members):
    named = "chief-0 cannot go on without worker-1; the same command resumes the job"
    with (
        socket.create_server(tuple_of(members[1])),
        pytest.raises(ConnectionError, match=named),
        strategy.naming_lost_replicas(members[0]),
    ):
        raise tf.errors.AbortedError(None, None, "a collective operation failed")


@pytest.mark.parametrize("chief", ["began anew", "stopped"])
def test_server_with_new_or_stopped_chief(members, capsys, chief):
    stop = mock.Mock()
    address, host_and_port = members[0].addresses["chief"][0], tuple_of(members[0])
    server = threading.Thread(target=strategy.follow, args=(address, stop, 1.0), daemon=True)
    with (
        socket.create_server(host_and_port) if chief == "stopped" else contextlib.nullcontext()
    ):  # which accepts nobody
        server.start()
        if chief == "began anew":
            outcomes = together({"chief": lambda: join(members[0], job="a", timeout_s=5)})
            assert isinstance(outcomes["chief"], TimeoutError)
            assert (
                f"the chief at {address} has been started again, or gone for"
                in capsys.readouterr().out
            )
        else:
            server.join(3)
            assert not stop.end.called
    server.join(20)
    assert stop.end.called


def tuple_of(member: Member) -> tuple[str, int]:
    host, port = member.addresses[member.role][member.index].split(":")
    return host, int(port)
