"""Signals as bytes of a socket, so that a program can wait for them together with other events."""

import contextlib
import select
import signal
import socket
import time
from collections.abc import Iterator

STOPPING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_REPEATED_AFTER_S = 1.0


def received(signals: socket.socket) -> list[int]:
    """Reads the signals that have arrived at a socket of `signal_socket`.

    Waits if no signal has arrived.

    Returns:
      The numbers of those that ask this process to stop (SIGHUP, SIGINT, SIGTERM), in their order;
      an empty list if only other signals have arrived.
    """
    return [number for number in signals.recv(64) if number in STOPPING]


class LeftError(Exception):
    """Signal that ends this process and lets a remote job continue; the argument is its number."""


class StopRequest:
    """A request to stop, which the first signal makes; later signals may repeat it.

    A login session that ends sends both SIGTERM and SIGHUP, and a wrapper may send a signal twice.
    So a repetition, which asks to end at once, is only a second SIGINT, or another signal that
    comes again after at least a second.
    """

    def __init__(self) -> None:
        self._first_at: dict[int, float] = {}  # Monotonic time of the first signal of each number.

    @property
    def number(self) -> int:
        """Number of the signal that made the request; 0 before there is one."""
        return next(iter(self._first_at), 0)

    def is_repeated_by(self, number: int) -> bool:
        """Records a signal, and returns whether it repeats an earlier one.

        A second SIGINT does, and another signal if it first came at least 1 s ago.

        Args:
          number: Number of the signal.
        """
        now = time.monotonic()
        if number not in self._first_at:
            self._first_at[number] = now
            return False
        return number == signal.SIGINT or now - self._first_at[number] >= _REPEATED_AFTER_S

    def wait(self, signals: socket.socket, seconds: float) -> str:
        """Waits for some seconds, or until a signal comes, while a job runs that may outlive this.

        Args:
          signals: Socket of `signal_socket`.
          seconds: Longest wait.

        Returns:
          Name of the signal if it makes the request; else an empty text.

        Raises:
          LeftError: If the signal is SIGHUP as the first one, a second SIGINT, or another one that
            came at least 1 s ago for the first time.
        """
        name = ""
        if select.select([signals], [], [], seconds)[0]:
            for number in received(signals):
                is_first = not self.number
                if self.is_repeated_by(number) or (number == signal.SIGHUP and is_first):
                    raise LeftError(number)
                if is_first:
                    name = signal.Signals(number).name
        return name


@contextlib.contextmanager
def signal_socket() -> Iterator[socket.socket]:
    """Yields a socket that becomes readable when a signal arrives; `received` reads it.

    SIGHUP, SIGINT and SIGTERM only write to the socket until the block ends, which then restores
    their handlers. Signals that this process ignores stay ignored. The block must be in the main
    thread.
    """
    receiver, sender = socket.socketpair()
    with receiver, sender:
        sender.setblocking(False)
        # The handlers do nothing. Python itself writes a signal's number to the wakeup descriptor,
        # but only if the signal has a handler in Python.
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
