"""Signals as something to wait for beside others."""

import contextlib
import signal
import socket
from collections.abc import Iterator

STOPPING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def ending(returncode: int) -> str:
    """How a process ended: `exit code 3`, or `SIGKILL`."""
    if returncode >= 0:
        return f"exit code {returncode}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-returncode).name
    return f"signal {-returncode}"  # A real-time one, which has no name.


def received(signals: socket.socket) -> list[int]:
    """Returns the signals that came, of those that ask this process to stop."""
    return [number for number in signals.recv(64) if number in STOPPING]


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
