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
_HTTP2_SETTINGS = b"\0"  # how a gRPC server begins: with the length of its settings, below 16 MiB


def join_cluster(me: Member, *, job: str, timeout_s: float) -> ControlChannel:
    """Returns when all members of the cluster have called it with the same `job`: ports are used again.

    The channel between them is broken from the start for a server that comes when the others have met already.

    Raises:
      TimeoutError: Naming those that have not after `timeout_s`.
      ConnectionError: If the leader's address is in use by another job, which is named, or by another program.
    """
    if len(me.everyone) < 2:
        return ControlChannel()
    deadline = time.monotonic() + timeout_s
    try:
        return _lead(me, job, deadline) if me.is_chief else _follow(me, job, deadline)
    except TimeoutError as error:
        raise TimeoutError(f"after {timeout_s:.0f} s {error}") from None


def _lead(me: Member, job: str, deadline: float) -> ControlChannel:
    """Collects job and name from everyone, then answers all with the job: that they may go on.

    A replica of another job gets the same answer, at once.
    """
    answer, expected = f"{json.dumps(job)}\n".encode(), me.others.keys()
    port = int(me.everyone[me.name].rsplit(":", 1)[1])
    with contextlib.ExitStack() as stack:
        try:
            listener = stack.enter_context(socket.create_server(("", port), backlog=len(expected)))
        except OSError as error:
            raise ConnectionError(f"the leader cannot listen at port {port}, its own: {error.strerror}") from None
        listener.settimeout(_RETRY_S)
        connections: dict[str, socket.socket] = {}
        while missing := expected - connections.keys():
            if time.monotonic() > deadline:
                raise TimeoutError(f"these replicas are missing: {', '.join(sorted(missing))}")
            with contextlib.suppress(OSError, ValueError, TypeError):  # nobody came, came and went, or is no replica
                connection = stack.enter_context(listener.accept()[0])
                connection.settimeout(_SAY_S)
                connection.sendall(_GREETING)
                with connection.makefile("r", encoding="utf-8", errors="replace") as lines:
                    their_job, name = map(str, bounded_json.parse(lines.readline(_MOST_CHARACTERS)))
                if their_job != job:
                    print(f"{name} of another job, {their_job}, came to port {port}, and was sent away", flush=True)
                    connection.sendall(answer)
                elif name in expected:
                    connections[name] = connection
        for connection in connections.values():
            with contextlib.suppress(OSError):
                connection.sendall(answer)
        return ControlChannel([connection.dup() for connection in connections.values()])


def _follow(me: Member, job: str, deadline: float) -> ControlChannel:
    """Sends job and name to the leader until it answers; a leader that is not up yet is tried again."""
    leader, address = next(iter(me.others.items()))
    state, answer = f"does not answer at {address}", b""
    while not answer:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{leader} {state}")
        with contextlib.suppress(OSError), _connected(address, _SAY_S) as connection:
            state = "still waits for others"
            connection.sendall(f"{json.dumps([job, me.name])}\n".encode())
            if connection.recv(1) == _HTTP2_SETTINGS:  # The others have met: this one was started again,
                return ControlChannel(broken=True)  # and TensorFlow answers already.
            connection.settimeout(max(deadline - time.monotonic(), _RETRY_S))
            # Unbuffered: what comes behind the answer is for the channel.
            answer = connection.makefile("rb", buffering=0).readline()
            if answer == f"{json.dumps(job)}\n".encode():
                return ControlChannel([connection.dup()])
        time.sleep(_RETRY_S)
    raise ConnectionError(
        f"at {address}, the address of {leader} of job {json.dumps(job)}, there is the leader of job "
        f"{answer.decode(errors='replace').strip()}; give every job ports of its own"
    )


def gone(me: Member, *, within_s: float = 0.0) -> list[str]:
    """Returns other replicas that do not answer, as soon as there is one: a process that dies may close its port last."""
    deadline = time.monotonic() + within_s
    while True:
        names = [name for name, address in me.others.items() if not listens(address)]
        if names or time.monotonic() >= deadline:
            return names
        time.sleep(_POLL_S)


def listens(address: str) -> bool:
    """Returns whether a server answers at `host:port`: a replica's ends with its process."""
    with contextlib.suppress(OSError), _connected(address):
        return True
    return False


def begins_anew(address: str) -> bool:
    """Returns whether a leader at `host:port` waits for replicas to come; one that is stopped says nothing for now."""
    with contextlib.suppress(OSError), _connected(address) as connection:
        return connection.recv(1) == _GREETING
    return False


def _connected(address: str, timeout_s: float = 1.0) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=timeout_s)
