"""Rendezvous of the replicas: waits for every one, and names those that are missing or belong to another job.

TensorFlow's multi-worker runtime waits for ever for a missing replica, and while it does no Python code runs. So the
replicas meet before it starts, over plain sockets at the chief's address. TensorFlow takes that over afterwards, while
the connections stay: a port that nobody listens at can be taken in spite of them (SO_REUSEADDR, which both sides set).
"""

import contextlib
import json
import socket
import time

from common import bounded_json
from trainer.cluster.control_channel import ControlChannel
from trainer.cluster.member import Member

_RETRY_S = 0.2
_POLL_S = 0.05
_SAY_S = 5.0
_MOST_CHARACTERS = 1 << 16  # Of what a replica says of itself: the path of its job, escaped.
_GREETING = b"?"  # of a leader that waits: to a server that waits for its chief it says that the chief begins anew
_HTTP2_SETTINGS = b"\0\0"  # how a gRPC server begins: with the length of its settings, far below 64 KiB


def join_cluster(me: Member, *, job: str, timeout_s: float) -> ControlChannel:
    """Returns when all members of the cluster have called it with the same `job`: ports are used again.

    The channel between them is broken from the start for a server that comes when the others have met already.

    Raises:
      TimeoutError: Naming those that have not after `timeout_s`.
      ConnectionError: If the leader's address is in use by another job, which is named, or by another program.
    """
    if len(me.everyone) < 2:
        return ControlChannel()
    leader, address = next(iter(me.everyone.items()))
    host, port = address.rsplit(":", 1)
    deadline = time.monotonic() + timeout_s
    if me.name == leader:
        return _lead(job, int(port), {*me.others}, deadline, timeout_s)
    return _follow(job, me, leader, (host, int(port)), deadline, timeout_s)


def _lead(job: str, port: int, expected: set[str], deadline: float, timeout_s: float) -> ControlChannel:
    """Collects a line with job and name from everyone, then answers all with the job: that they may go on.

    A replica of another job gets the same answer, at once.
    """
    answer = f"{json.dumps(job)}\n".encode()
    with contextlib.ExitStack() as stack:
        try:
            listener = stack.enter_context(socket.create_server(("", port), backlog=len(expected)))
        except OSError as error:
            raise ConnectionError(f"the leader cannot listen at port {port}, its own: {error.strerror}") from None
        listener.settimeout(_RETRY_S)
        connections: dict[str, socket.socket] = {}
        while missing := expected - connections.keys():
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {timeout_s:.0f} s these replicas are missing: {', '.join(sorted(missing))}")
            with contextlib.suppress(OSError):  # nobody came, or came and went: it will come again
                connection = stack.enter_context(listener.accept()[0])
                connection.settimeout(_SAY_S)
                connection.sendall(_GREETING)
                theirs, name = _heard(connection)
                if theirs == job and name in expected:
                    connections[name] = connection
                elif theirs not in (job, None):
                    print(f"{name} of another job, {theirs}, came to port {port}, and was sent away", flush=True)
                    connection.sendall(answer)
        for connection in connections.values():
            with contextlib.suppress(OSError):
                connection.sendall(answer)
        return ControlChannel([connection.dup() for connection in connections.values()])


def _heard(connection: socket.socket) -> tuple[str | None, str]:
    """Job and name that the other end tells, or None and nothing if it is no replica."""
    with connection.makefile("r", encoding="utf-8", errors="replace") as lines:
        try:
            job, name = bounded_json.parse(lines.readline(_MOST_CHARACTERS))
            return str(job), str(name)
        except (ValueError, TypeError):
            return None, ""


def _follow(
    job: str, me: Member, leader: str, address: tuple[str, int], deadline: float, timeout_s: float
) -> ControlChannel:
    """Says job and name to the leader until told to go on; a leader that is not up yet is tried again."""
    told, answer = f"does not answer at {address[0]}:{address[1]}", b""
    while not answer:
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {timeout_s:.0f} s {leader} {told}")
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=_SAY_S) as connection:
            told, said = "still waits for others", b""
            connection.sendall(f"{json.dumps([job, me.name])}\n".encode())
            connection.settimeout(_RETRY_S)
            while b"\n" not in said and time.monotonic() < deadline:
                with contextlib.suppress(TimeoutError):
                    if not (more := connection.recv(4096)):
                        break
                    said = (said + more).removeprefix(_GREETING)
                    if said.startswith(_HTTP2_SETTINGS):  # The others have met: this one was started again,
                        return ControlChannel(broken=True)  # and TensorFlow answers already.
            if b"\n" in said:
                answer, _, words = said.partition(b"\n")
                if answer == json.dumps(job).encode():
                    return ControlChannel([connection.dup()], messages=words)
        time.sleep(_RETRY_S)
    raise ConnectionError(
        f"at {address[0]}:{address[1]}, the address of {leader} of job {json.dumps(job)}, there is the leader of job "
        f"{answer.decode(errors='replace')}; give every job ports of its own"
    )


def gone(me: Member, *, within_s: float = 0.0) -> list[str]:
    """The other replicas that do not answer, as soon as there is one: a process that dies may close its port last."""
    deadline = time.monotonic() + within_s
    while True:
        names = [name for name, address in me.others.items() if not listens(address)]
        if names or time.monotonic() >= deadline:
            return names
        time.sleep(_POLL_S)


def listens(address: str) -> bool:
    """Whether a server answers at `host:port`: a replica's ends with its process."""
    try:
        _connected(address).close()
    except OSError:
        return False
    return True


def begins_anew(address: str) -> bool:
    """Whether a leader at `host:port` waits for replicas to come; one that is stopped says nothing for now."""
    try:
        with _connected(address) as connection:
            return connection.recv(1) == _GREETING
    except OSError:
        return False


def _connected(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=1)
