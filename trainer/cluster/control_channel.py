"""Messages between the chief and the others, over the connections by which they met.

    channel = rendezvous.join_cluster(member, job=job_dir, timeout_s=600)
    channel.send(STOP)                          # worker-0
    if channel.received(STOP, within_s=30): ... # the chief, as soon as it was sent

A replica that was started again alone has no channel; it asks by a file (`trainer.cluster.shutdown`).
"""

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Sequence

STOP = b"S"  # to the chief: the sender was told to stop, and asks for a save
LEFT = b"L"  # from the chief: all is saved, and it leaves before the job is done
DONE = b"D"  # from the chief: the job is done

# A lost host never closes its socket; TCP keepalive detects it: idle seconds, interval, probes.
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_OTHERS_LEAVE_S = 5.0


class ControlChannel:
    """One end: the chief's goes to all the others, theirs to the chief; that of a job of one to nobody."""

    def __init__(self, connections: Sequence[socket.socket] = (), *, broken: bool = False) -> None:
        """Takes the connections over."""
        self.broken = broken  # for good: someone who should be there cannot be reached
        self._connections = connections
        self._open = len(connections)
        self._messages: set[int] = set()
        self._news = threading.Condition()
        for connection in connections:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE.items():
                if hasattr(socket, name):  # not on every system
                    connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        if connections:
            threading.Thread(target=self._listen, name="control channel", daemon=True).start()

    def send(self, message: bytes) -> None:
        """Sends a message to all peers that can be reached."""
        for connection in self._connections:
            try:
                connection.sendall(message)
            except OSError:
                self.broken = True

    def received(self, *messages: bytes, within_s: float = 0.0) -> bool:
        """Returns whether any peer has sent one of the messages, at the latest after `within_s`."""
        return self._wait(lambda: not self._messages.isdisjoint(b"".join(messages)), within_s)

    def wait_for_end(self) -> None:
        """Waits until the chief has said how the job ended.

        Raises:
          ConnectionError: If it has gone without a message.
        """
        self._wait(lambda: self._messages or self.broken)
        if not self._messages and self._connections:
            raise ConnectionError("the chief has ended before its results were written")

    def wait_for_others(self) -> None:
        """Waits, for a limited time, until all peers have closed their ends.

        A collective operation is no barrier: it returns on one replica while another still fetches the last part from it.
        So the chief, which the others depend on most, leaves last.
        """
        self._wait(lambda: not self._open, _OTHERS_LEAVE_S)

    def _wait(self, condition: Callable[[], object], within_s: float | None = None) -> bool:
        with self._news:
            return bool(self._news.wait_for(condition, within_s))

    def _listen(self) -> None:
        with selectors.DefaultSelector() as ends:
            for connection in self._connections:
                ends.register(connection, selectors.EVENT_READ)
            while self._open:
                for key, _ in ends.select():
                    content = b""
                    with contextlib.suppress(OSError):
                        content = key.fileobj.recv(64)
                    with self._news:
                        self._messages.update(content)
                        if not content:
                            ends.unregister(key.fileobj)
                            self._open -= 1
                            self.broken = True
                        self._news.notify_all()
