"""Words between replicas, over real connections, and the mark in the store for those who lost theirs."""

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

from components.train.backends.ports import reserved
from trainer.cluster import shutdown
from trainer.cluster.control_channel import DONE, LEFT, STOP, Line
from trainer.cluster.member import Member
from trainer.cluster.rendezvous import listens, meet
from trainer.cluster.shutdown import StopMark

SOON_S = 10.0


def members(ports: tuple[int, ...]) -> list[Member]:
    """A chief and workers at these ports."""
    addresses = {"chief": (f"127.0.0.1:{ports[0]}",), "worker": tuple(f"127.0.0.1:{port}" for port in ports[1:])}
    roles = [("chief", 0), *(("worker", i) for i in range(len(ports) - 1))]
    return [Member(role=role, index=index, addresses=addresses) for role, index in roles]


@contextlib.contextmanager
def met(count: int) -> Iterator[tuple[list[Member], list[Line]]]:
    """The members of a job, the chief first, and the ends of their lines."""
    with reserved(count) as ports, ThreadPoolExecutor(count) as pool:
        everyone = members(ports)
        lines = list(pool.map(lambda member: meet(member, job="a", timeout_s=SOON_S), everyone))
        yield everyone, lines
        for line in lines:
            cut(line)


def cut(line: Line, which: slice = slice(None)) -> None:
    for connection in line._connections[which]:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SOON_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def test_what_one_says_the_others_hear_at_once_and_only_they():
    with met(3) as (_, [chief, one, other]):
        assert not chief.hears(STOP, within_s=0.05)
        assert one.tell(STOP) and chief.hears(STOP, within_s=1)
        assert chief.tell(DONE) and one.hears(LEFT, DONE, within_s=1) and other.hears(DONE, within_s=1)
        assert not other.hears(STOP, LEFT, within_s=0.05)
        assert not any(line.broken for line in (chief, one, other))
        for connection in (*chief._connections, *one._connections):
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) and not connection.get_inheritable()


@pytest.mark.parametrize(
    ("answer", "broken"),
    [(b'?"a"\n' + LEFT, False), (b"\0\0\x12\4\0", True)],
    ids=["go on, and a word", "of a gRPC server"],
)
def test_a_word_that_comes_at_once_is_heard_and_who_comes_when_the_others_have_met_has_a_broken_line(answer, broken):
    with reserved(2) as ports, ThreadPoolExecutor(1) as pool:
        _, worker = members(ports)
        with socket.create_server(("127.0.0.1", ports[0])) as listener:
            line = pool.submit(meet, worker, job="a", timeout_s=SOON_S)
            with listener.accept()[0] as connection:
                connection.sendall(answer)
                assert line.result().hears(LEFT) is not broken and line.result().broken is broken


def test_a_job_of_one_has_no_line():
    alone = meet(Member(role="chief", index=0, addresses={}), job="a", timeout_s=1)
    assert not alone.broken and not alone.tell(LEFT) and not alone.hears(STOP)


CHIEF = """
import sys
from trainer.cluster.control_channel import STOP
from trainer.cluster.member import Member
from trainer.cluster.rendezvous import meet
addresses = {"chief": (sys.argv[1],), "worker": (sys.argv[2],)}
line = meet(Member(role="chief", index=0, addresses=addresses), job="a", timeout_s=60)
import tensorflow as tf
cluster = tf.train.ClusterSpec({role: list(hosts) for role, hosts in addresses.items()})
server = tf.distribute.Server(cluster, job_name="chief", task_index=0, protocol="grpc")
print(line.hears(STOP, within_s=60), line.broken, flush=True)
sys.stdin.read()
"""


@pytest.mark.cluster
def test_tensorflow_takes_the_leaders_port_over_while_the_line_stays_and_its_end_shows_that_the_leader_is_gone():
    with reserved(2) as ports:
        _, worker = members(ports)
        addresses = [worker.addresses["chief"][0], worker.addresses["worker"][0]]
        chief = subprocess.Popen(
            [sys.executable, "-c", CHIEF, *addresses], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with chief:
            line = meet(worker, job="a", timeout_s=60)
            deadline = time.monotonic() + 60
            while not listens(addresses[0]):
                assert chief.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
            assert line.tell(STOP)
            assert chief.stdout.readline() == "True False\n"
            chief.kill()
            assert soon(lambda: line.broken)
            # A leader that starts again finds its port free, whoever still holds the other end.
            socket.create_server(("127.0.0.1", ports[0])).close()


def test_a_stop_reaches_the_chief_and_is_answered_while_the_store_hangs(store, monkeypatch):
    with met(2) as (_, [line, others]):
        chief, worker = StopMark(str(store), line), StopMark(str(store), others)
        chief.watch()
        back = threading.Event()

        def hang(*_: object) -> None:
            back.wait(60)
            raise tf.errors.UnavailableError(None, None, "it is away")

        monkeypatch.setattr(backend._TfBackend, "open", hang)
        worker.set("worker-0")
        assert soon(chief.is_set)
        assert not worker.answered()
        line.tell(LEFT)
        assert worker.answered() and worker.left
        back.set()


WHAT = ("told", "its end breaks", "the chief's end breaks")
EVENTS = st.permutations([(what, who) for who in (1, 2) for what in WHAT])


@settings(max_examples=max(5, settings.default.max_examples // 10), deadline=None)
@given(events=EVENTS, count=st.integers(1, 6), remote=st.booleans())
def test_in_whichever_order_lines_break_and_replicas_are_told_all_have_heard(events, count, remote, tmp_path_factory):
    events = events[:count]
    with (
        memory_store.mounted() as root,
        mock.patch.multiple(shutdown, _LOOK_S=0.01, _LOOK_IN_STORE_S=0.02, _LOOK_RARELY_S=3600.0, _TICK_S=0.01),
        met(3) as (_, lines),
    ):
        directory = str(tmp_path_factory.mktemp("job"))
        marks = [StopMark(f"{root}bucket{directory}" if remote else directory, line) for line in lines]
        marks[0].clear()
        marks[0].watch()
        for what, who in events:
            if what == "told":
                marks[who].set(f"worker-{who - 1}")
            else:
                cut(*((lines[who],) if what == "its end breaks" else (lines[0], slice(who - 1, who))))
        told = [who for what, who in events if what == "told"]
        if told:
            assert soon(marks[0].is_set), events
        else:
            assert not marks[0].is_set()
        for who in told:
            marks[who]._writing.join()
        lines[0].tell(LEFT)
        marks[0].leave()
        for mark in marks[1:]:
            assert soon(lambda mark=mark: mark.left), events
        marks[0]._asked = True  # its thread ends
