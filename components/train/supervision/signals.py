"""Signals as something to wait for beside others."""

import contextlib
import signal
import socket
import time
from collections.abc import Iterator

STOPPING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_REPEATED_AFTER_S = 1.0


def received(signals: socket.socket) -> list[int]:
    """Returns the signals that came, of those that ask this process to stop."""
    return [number for number in signals.recv(64) if number in STOPPING]


class StopRequest:
    """A request to stop: the first signal makes it, and others are the same request.

    A login session that ends sends SIGTERM and SIGHUP, and a wrapper may send a signal twice. So
    only a second SIGINT, or another signal again after a second, asks to end at once.
    """

    def __init__(self) -> None:
        self._first_at: dict[int, float] = {}  # Monotonic time at which each signal first came.

    @property
    def number(self) -> int:
        """The signal that made the request; 0 before there is one."""
        return next(iter(self._first_at), 0)

    def is_repeated_by(self, number: int) -> bool:
        """Records a signal; returns whether it repeats an earlier one, so that all is to end at once."""
        now = time.monotonic()
        if number not in self._first_at:
            self._first_at[number] = now
            return False
        return number == signal.SIGINT or now - self._first_at[number] >= _REPEATED_AFTER_S


@contextlib.contextmanager
def signal_socket() -> Iterator[socket.socket]:
    """A socket that receives the number of each signal; one that this process was started to ignore stays ignored."""
    receiver, sender = socket.socketpair()
    with receiver, sender:
        sender.setblocking(False)
        before = {
            number: signal.signal(number, lambda *_: None)
            for number in STOPPING
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        wakeup = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        try:
            yield receiver
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
