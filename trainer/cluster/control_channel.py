"""Rendezvous of the replicas, and messages between the chief and the others.

    channel = control_channel.join(member, job=job_dir, timeout_s=600)
    channel.send(STOP)                          # worker-0
    if channel.received(STOP, within_s=30): ... # the chief, as soon as it was sent

TensorFlow's multi-worker runtime waits for ever for a missing replica, and no Python code runs
meanwhile. So the replicas first meet over plain sockets at the chief's address. Then TensorFlow
takes over that address, and the connections stay open for the messages: a port can be bound in
spite of open connections if nobody listens at it (SO_REUSEADDR, which both sides set).
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Sequence

from trainer.cluster.member import Member

STOP = b"S"  # To the chief: the sender has got a stop request, and asks for a save.
LEFT = b"L"  # From the chief: all is saved, and it leaves before the job is done.
DONE = b"D"  # From the chief: the job is done.

# First byte of a leader that waits for others. A server that sees it at its chief's address knows
# that the chief was started again.
GREETING = b"?"
# First byte of a gRPC server: it begins with the length of its settings, which is below 16 MiB.
_HTTP2_SETTINGS = b"\0"

_RETRY_S = 0.2
_HELLO_S = 5.0
_OTHERS_LEAVE_S = 5.0
_MOST_CHARACTERS = 1 << 16  # Longest line with a replica's job and name.

# A lost host never closes its socket; TCP keepalive detects it: idle seconds, interval, probes.
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


class ControlChannel:
    """One end of the connections between the chief and each of the others.

    The chief's end sends to all others, and their ends to the chief. An end without connections,
    whose messages go nowhere, belongs to a job of one replica, or to a server that was started
    again after the others had met.
    """

    def __init__(self, connections: Sequence[socket.socket] = ()) -> None:
        """Takes over connected sockets, and listens to each in a thread."""
        self._connections = connections
        self._open = len(connections)
        self._messages: set[bytes] = set()
        self._news = threading.Condition()
        for connection in connections:
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE.items():
                if hasattr(socket, name):  # Some systems lack these options.
                    connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            threading.Thread(
                target=self._listen, args=(connection,), name="control channel", daemon=True
            ).start()

    def send(self, message: bytes) -> None:
        """Sends a message of one byte to all peers; those that cannot be reached are ignored."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.sendall(message)

    def received(self, *messages: bytes, within_s: float = 0.0) -> bool:
        """Returns whether any peer has ever sent one of the messages, or does in the next seconds.

        Args:
          *messages: Messages, each of one byte.
          within_s: Seconds to wait for one that has not come yet.
        """
        return self._wait(lambda: not self._messages.isdisjoint(messages), within_s)

    def wait_for_end(self) -> bool:
        """Waits until the chief has said how the job ended.

        Returns:
          True if the job is done, False if the chief leaves before that.

        Raises:
          ConnectionError: If the connection to the chief ends without a message, or there is none.
        """
        self._wait(lambda: self._messages or not self._open)
        if not self._messages:
            raise ConnectionError("the chief has ended before its results were written")
        return DONE in self._messages

    def wait_for_others(self) -> None:
        """Waits until all peers have closed their ends, for at most 5 seconds.

        A collective operation is no barrier: it returns on one replica while another still fetches
        the last part from it. So the chief, on which the others depend most, leaves last.
        """
        self._wait(lambda: not self._open, _OTHERS_LEAVE_S)

    def _wait(self, condition: Callable[[], object], within_s: float | None = None) -> bool:
        with self._news:
            return bool(self._news.wait_for(condition, within_s))

    def _listen(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while message := connection.recv(1):
                with self._news:
                    self._messages.add(message)
                    self._news.notify_all()
        with self._news:
            self._open -= 1
            self._news.notify_all()


def join(member: Member, *, job: str, timeout_s: float) -> ControlChannel:
    """Waits until all replicas of the cluster have called it with the same `job`.

    Comparing jobs matters because ports are used again.

    Args:
      member: This replica.
      job: Name of the job, such as its directory.
      timeout_s: Seconds to wait at most.

    Returns:
      This replica's end of the connections; without any if it is the only replica, or was started
      again after the others had met.

    Raises:
      TimeoutError: If replicas are missing after `timeout_s`; it names them.
      ConnectionError: If another job, which is named, or another program uses the leader's address.
    """
    if not member.addresses:
        return ControlChannel()
    return (_lead if member.is_chief else _follow)(member, job, timeout_s)


def _lead(member: Member, job: str, timeout_s: float) -> ControlChannel:
    """Collects job and name from everyone, then sends all of them the job, so that they go on.

    A replica of another job gets the same answer at once, and ends.

    Raises:
      TimeoutError: If replicas are missing after `timeout_s`.
      ConnectionError: If this replica cannot listen at its own port.
    """
    deadline = time.monotonic() + timeout_s
    answer, port = (
        f"{json.dumps(job)}\n".encode(),
        int(member.everyone[member.name].rsplit(":", 1)[1]),
    )
    try:
        listener = socket.create_server(("", port))
    except OSError as error:
        raise ConnectionError(
            f"the leader cannot listen at port {port}, its own: {error.strerror}"
        ) from None
    listener.settimeout(_RETRY_S)
    connections: dict[str, socket.socket] = {}
    with listener:
        while missing := member.others.keys() - connections.keys():
            if time.monotonic() > deadline:
                names = ", ".join(sorted(missing))
                raise TimeoutError(f"after {timeout_s:.0f} s these replicas are missing: {names}")
            # Errors mean that nobody connected, that the peer has gone again, or that it is not a
            # replica; the leader goes on waiting.
            with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
                connection, _ = listener.accept()
                connection.settimeout(_HELLO_S)
                connection.sendall(GREETING)
                with connection.makefile(encoding="utf-8", errors="replace") as lines:
                    their_job, name = map(str, json.loads(lines.readline(_MOST_CHARACTERS)))
                if their_job != job:
                    print(
                        f"{name} of another job, {their_job}, came to port {port}, and was sent "
                        "away"
                    )
                    connection.sendall(answer)
                elif name in member.others:
                    connections[name] = connection
    channel = ControlChannel([*connections.values()])
    channel.send(answer)
    return channel


def _follow(member: Member, job: str, timeout_s: float) -> ControlChannel:
    """Sends job and name to the leader until it answers, trying again while it is not up yet.

    Returns:
      An end with the connection to the leader; without any if TensorFlow answers in its place, as
      the others have met already.

    Raises:
      TimeoutError: If the leader has not answered after `timeout_s`.
      ConnectionError: If the leader of another job, or another program, answers.
    """
    deadline = time.monotonic() + timeout_s
    leader, address = next(iter(member.others.items()))
    state, answer = f"does not answer at {address}", b""
    while not answer:
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {timeout_s:.0f} s {leader} {state}")
        with contextlib.suppress(OSError):
            connection = _connect(address, _HELLO_S)
            state = "still waits for others"
            connection.sendall(f"{json.dumps([job, member.name])}\n".encode())
            # If TensorFlow answers, the others have met already: this replica was started again.
            if connection.recv(1) == _HTTP2_SETTINGS:
                return ControlChannel()
            connection.settimeout(max(deadline - time.monotonic(), _RETRY_S))
            # Unbuffered, since the bytes behind the answer are messages for the channel.
            with connection.makefile("rb", buffering=0) as lines:
                answer = lines.readline()
            if answer == f"{json.dumps(job)}\n".encode():
                return ControlChannel([connection])
        time.sleep(_RETRY_S)
    raise ConnectionError(
        f"at {address}, the address of {leader} of job {json.dumps(job)}, there is the leader of "
        f"job {answer.decode(errors='replace').strip()}; give every job ports of its own"
    )


def first_byte(address: str) -> bytes | None:
    """Returns the first byte that a server at `host:port` sends.

    It is empty if the server sends nothing for a second, and None if there is no server. As a
    replica's server ends with its process, None means that the replica has ended.
    """
    with contextlib.suppress(OSError), _connect(address, 1.0) as connection:
        try:
            return connection.recv(1)
        except OSError:
            return b""
    return None


def _connect(address: str, timeout_s: float) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=timeout_s)
