"""How replicas come together and part.

`meet` waits until every replica is there, and names those that are not, and one that belongs to another job.

TensorFlow's multi-worker runtime waits for ever for a missing replica, and while it does no Python code runs. So the
replicas meet before it starts, over plain sockets at the leader's address. TensorFlow takes that over afterwards, while
the connections stay: a port that nobody listens at can be taken in spite of them (SO_REUSEADDR, which both sides set).

`part` lets them leave. A collective operation is no barrier: it returns on one replica while another still fetches the
last piece from it, and if that one is gone then, the other fails after all the work is done.
"""

import contextlib
import json
import socket
import time
from collections.abc import Callable

from common import bounded_json
from trainer.cluster.control_channel import DONE, LEFT, Line
from trainer.cluster.member import Member

_RETRY_S = 0.2
_POLL_S = 0.05
_SAY_S = 5.0
_MOST_CHARACTERS = 1 << 16  # Of what a replica says of itself: the path of its job, escaped.
_OTHERS_LEAVE_S = 5.0
_LEADER_LIVES_S = 1.0
_GREETING = b"?"  # of a leader that waits: to a server that waits for its chief it says that the chief begins anew
_HTTP2_SETTINGS = b"\0\0"  # how a gRPC server begins: with the length of its settings, far below 64 KiB


def meet(me: Member, *, job: str, timeout_s: float) -> Line:
    """Returns when all members of the cluster have called it with the same `job`: ports are used again.

    The line between them is broken from the start for a server that comes when the others have met already.

    Raises:
      TimeoutError: Naming those that have not after `timeout_s`.
      ConnectionError: If the leader's address is in use by another job, which is named, or by another program.
    """
    if len(me.everyone) < 2:
        return Line()
    leader, address = next(iter(me.everyone.items()))
    host, port = address.rsplit(":", 1)
    deadline = time.monotonic() + timeout_s
    if me.name == leader:
        return _lead(job, int(port), {*_others(me)}, deadline, timeout_s)
    return _follow(job, me, leader, (host, int(port)), deadline, timeout_s)


def _lead(job: str, port: int, expected: set[str], deadline: float, timeout_s: float) -> Line:
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
        return Line([connection.dup() for connection in connections.values()])


def _heard(connection: socket.socket) -> tuple[str | None, str]:
    """Job and name that the other end tells, or None and nothing if it is no replica."""
    with connection.makefile("r", encoding="utf-8", errors="replace") as lines:
        try:
            job, name = bounded_json.parse(lines.readline(_MOST_CHARACTERS))
            return str(job), str(name)
        except (ValueError, TypeError):
            return None, ""


def _follow(job: str, me: Member, leader: str, address: tuple[str, int], deadline: float, timeout_s: float) -> Line:
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
                        return Line(broken=True)  # and TensorFlow answers already.
            if b"\n" in said:
                answer, _, words = said.partition(b"\n")
                if answer == json.dumps(job).encode():
                    return Line([connection.dup()], heard=words)
        time.sleep(_RETRY_S)
    raise ConnectionError(
        f"at {address[0]}:{address[1]}, the address of {leader} of job {json.dumps(job)}, there is the leader of job "
        f"{answer.decode(errors='replace')}; give every job ports of its own"
    )


def part(me: Member, line: Line, *, completed: Callable[[], bool], every_s: float = _POLL_S) -> None:
    """Returns when this replica may end without hurting another.

    The leader, which the others depend on most, goes last; the others go when it tells them on the `line` how the job
    ended, or when its results are there, as `completed` says, which is asked every `every_s`.

    Raises:
      ConnectionError: If the leader ends without. One that hangs is for whoever watches over the job.
    """
    others = _others(me)
    if me.is_chief:
        deadline = time.monotonic() + _OTHERS_LEAVE_S
        while any(map(listens, others.values())) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return
    leader, address = next(iter(others.items()), ("", ""))
    look_at = time.monotonic()
    ask_at = look_at if line.broken else look_at + every_s
    while others and not line.hears(LEFT, DONE, within_s=_POLL_S):
        now = time.monotonic()
        asks, looks = now >= ask_at, now >= look_at
        ask_at, look_at = now + every_s if asks else ask_at, now + _LEADER_LIVES_S if looks else look_at
        alive = not looks or listens(address)
        if (asks or not alive) and completed():
            return
        if not alive:
            raise ConnectionError(f"{leader} has ended before its results were written")


def gone(me: Member, *, within_s: float = 0.0) -> list[str]:
    """The other replicas that do not answer, as soon as there is one: a process that dies may close its port last."""
    deadline = time.monotonic() + within_s
    while True:
        names = [name for name, address in _others(me).items() if not listens(address)]
        if names or time.monotonic() >= deadline:
            return names
        time.sleep(_POLL_S)


def _others(me: Member) -> dict[str, str]:
    """Addresses by name; the leader, the chief or else worker 0, comes first."""
    return {name: address for name, address in me.everyone.items() if name != me.name}


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
