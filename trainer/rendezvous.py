"""How replicas come together and part.

`meet` waits until every replica is there, and names those that are not.

TensorFlow's multi-worker runtime waits for ever for a missing replica, and while it does no Python code runs. So the
replicas meet before it starts, over plain sockets at the leader's address, which TensorFlow takes over afterwards.

`part` lets them leave. A collective operation is no barrier: it returns on one replica while another still fetches the
last piece from it, and if that one is gone then, the other fails after all the work is done.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable

from trainer.cluster import Member

_RETRY_S = 0.2
_POLL_S = 0.05
_SAY_S = 5.0
_OTHERS_LEAVE_S = 5.0


class Missing(TimeoutError):
    """Some replicas did not come in time; the message names them."""


def meet(me: Member, *, timeout_s: float, interrupted: Callable[[], bool] = lambda: False) -> None:
    """Returns when all members of the cluster have called it.

    Args:
      me: This replica.
      timeout_s: To wait for the others.
      interrupted: Asked now and then whether to give up.

    Raises:
      Missing: Naming those that have not after `timeout_s`.
      InterruptedError: If `interrupted` said so.
    """
    members = [(role, index) for role, hosts in me.addresses.items() for index in range(len(hosts))]
    if len(members) < 2:
        return
    role = "chief" if "chief" in me.addresses else "worker"
    host, port = me.addresses[role][0].rsplit(":", 1)
    deadline = time.monotonic() + timeout_s
    if (me.role, me.index) == (role, 0):
        _lead(int(port), {f"{r}-{i}" for r, i in members} - {me.name}, deadline, timeout_s, interrupted)
    else:
        _follow(me, f"{role}-0", (host, int(port)), deadline, timeout_s, interrupted)


def _lead(port: int, expected: set[str], deadline: float, timeout_s: float, interrupted: Callable[[], bool]) -> None:
    """Collects a line with its name from everyone, then tells all to go on."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("", port), backlog=len(expected)))
        listener.settimeout(_RETRY_S)
        connections: dict[str, socket.socket] = {}
        while missing := expected - connections.keys():
            _check(
                deadline,
                interrupted,
                f"after {timeout_s:.0f} s these replicas are missing: {', '.join(sorted(missing))}",
            )
            with contextlib.suppress(OSError):  # nobody came, or came and went: it will come again
                connection = stack.enter_context(listener.accept()[0])
                connection.settimeout(_SAY_S)
                with connection.makefile("r", encoding="utf-8", errors="replace") as lines:
                    name = lines.readline().strip()
                if name in expected:
                    connections[name] = connection
        for connection in connections.values():
            with contextlib.suppress(OSError):
                connection.sendall(b"go\n")
        for connection in connections.values():
            with contextlib.suppress(OSError):
                connection.recv(1)  # they close first, so that the port is free at once


def _follow(
    me: Member,
    leader: str,
    address: tuple[str, int],
    deadline: float,
    timeout_s: float,
    interrupted: Callable[[], bool],
) -> None:
    """Says its name to the leader until told to go on; a leader that is not up yet is tried again."""
    came = False
    while True:
        told = "still waits for others" if came else f"does not answer at {address[0]}:{address[1]}"
        _check(deadline, interrupted, f"after {timeout_s:.0f} s {leader} {told}")
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=_SAY_S) as connection:
            came = True
            connection.sendall(f"{me.name}\n".encode())
            connection.settimeout(_RETRY_S)
            while True:
                _check(deadline, interrupted, f"after {timeout_s:.0f} s {leader} still waits for others")
                with contextlib.suppress(TimeoutError):
                    if connection.recv(3) == b"go\n":
                        return
                    break
        time.sleep(_RETRY_S)


def _check(deadline: float, interrupted: Callable[[], bool], message: str) -> None:
    if interrupted():
        raise InterruptedError
    if time.monotonic() > deadline:
        raise Missing(message)


def part(me: Member, *, completed: Callable[[], bool], timeout_s: float) -> None:
    """Returns when this replica may end without hurting another.

    The leader, which the others depend on most, goes last; the others go when it has written its results.

    Args:
      me: This replica.
      completed: Whether the leader's results are there.
      timeout_s: That the others wait for them; after that something is wrong with the leader, and it will tell.
    """
    others = [
        a for role, hosts in me.addresses.items() for i, a in enumerate(hosts) if (role, i) != (me.role, me.index)
    ]
    deadline = time.monotonic() + (_OTHERS_LEAVE_S if me.is_chief else timeout_s)
    while time.monotonic() < deadline and (any(map(listens, others)) if me.is_chief else not completed()):
        time.sleep(_POLL_S)


def listens(address: str) -> bool:
    """Whether a server answers at `host:port`: a replica's ends with its process."""
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True
