"""Words between the leader and the others, told at once over the connections by which they met.

What stops or ends a job stands in its directory too, in `STOP` and `DONE.json`: for a replica that was started again
alone, and so has no line, and for those whose line broke. All others need not look there, or only rarely.

    line = rendezvous.meet(member, job=job_dir, timeout_s=600)
    line.tell(STOP)                       # worker-0
    if line.hears(STOP, within_s=30): ... # the leader, as soon as it was told
"""

import contextlib
import selectors
import socket
import threading
from collections.abc import Sequence

STOP = b"S"  # to the leader: the sender was told to stop, and asks for a save
LEFT = b"L"  # from the leader: all is saved, and it leaves before the job is done
DONE = b"D"  # from the leader: the job is done

# A machine that is lost closes nothing: the system asks for it after as many idle seconds, this often, so many times.
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


class Line:
    """One end: the leader's goes to all the others, theirs to the leader; that of a job of one to nobody."""

    def __init__(self, connections: Sequence[socket.socket] = (), *, broken: bool = False, heard: bytes = b"") -> None:
        """Takes the connections over; `heard` is what was read from them already."""
        self.broken = broken  # whether somebody who should be there cannot be told, or heard, over it; it stays so
        self._connections, self._words = connections, set(heard)
        self._news = threading.Condition()
        for connection in connections:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE.items():
                if hasattr(socket, name):  # not on every system
                    connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        if connections:
            threading.Thread(target=self._listen, name="line", daemon=True).start()

    def tell(self, word: bytes) -> bool:
        """Says a word to all who are there. Returns whether nobody is missing; False also where there is nobody to tell."""
        for connection in self._connections:
            try:
                connection.sendall(word)
            except OSError:
                self.broken = True
        return bool(self._connections) and not self.broken

    def hears(self, *words: bytes, within_s: float = 0.0) -> bool:
        """Whether somebody has said one of the words, as soon as that is so and at the latest after `within_s`."""
        wanted = set(b"".join(words))
        with self._news:
            return self._news.wait_for(lambda: bool(wanted & self._words), within_s)

    def _listen(self) -> None:
        with selectors.DefaultSelector() as ends:
            for connection in self._connections:
                ends.register(connection, selectors.EVENT_READ)
            while ends.get_map():
                for key, _ in ends.select():
                    said = b""
                    with contextlib.suppress(OSError):
                        said = key.fileobj.recv(64)
                    if not said:
                        ends.unregister(key.fileobj)
                        self.broken = True
                    with self._news:
                        self._words.update(said)
                        self._news.notify_all()
