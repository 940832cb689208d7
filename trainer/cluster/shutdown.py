"""SIGTERM as a flag that the step loop looks at.

TensorFlow's multi-worker runtime installs its own SIGTERM handler, and a parameter server sits in C++ where Python's
handlers never run. So the signal is blocked in every thread before TensorFlow starts any, and one thread waits for it.

    stop = Stop.install()     # before TensorFlow is imported
    import tensorflow
    ... if stop.requested: save and leave with exit_codes.saved()
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

from common.errors import UserError
from common.storage.files import delete_files, read_bytes, write_text
from common.storage.storage import is_remote
from trainer.cluster import exit_codes
from trainer.cluster.control_channel import DONE, LEFT, STOP, ControlChannel

# In a store: while all channels work, and while a replica may be without one.
_POLL_S, _POLL_RARELY_S, _POLL_IN_STORE_S = 0.1, 30.0, 8.0
_TICK_S = 1.0


class Stop:
    """Whether this process was told to stop."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._then: Callable[[], None] | None = None
        self.last: Callable[[], None] = lambda: None  # what `end` does before the process ends

    @classmethod
    def install(cls) -> Stop:
        """Blocks SIGTERM in this thread and all that it will start, and awaits it in a daemon thread."""
        stop = cls()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=stop._wait, name="sigterm", daemon=True).start()
        return stop

    @property
    def requested(self) -> bool:
        """True once the signal has come."""
        return self._event.is_set()

    def call(self, then: Callable[[], None]) -> None:
        """Runs `then` in the waiting thread when the signal comes, or now if it has: for a main thread stuck in C++."""
        self._then = then
        if self.requested:
            then()

    @contextlib.contextmanager
    def at_once(self, last: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Inside there is nothing to save, and the signal ends the process, after `last`, whatever it is doing."""

        def leave() -> None:
            try:
                last()
            finally:
                self.end(exit_codes.saved())

        before = self._then
        self.call(leave)
        try:
            yield
        finally:
            self._then = before

    def end(self, code: int) -> NoReturn:
        """Ends the process, whatever its other threads are doing, and whatever becomes of `last`."""
        try:
            self.last()
        finally:
            os._exit(code)

    def _wait(self) -> None:
        signal.sigwait({signal.SIGTERM})
        self._event.set()
        if self._then:
            self._then()


class StopRequests:
    """Requests to the chief to save and leave, from replicas that were told to stop.

    They come over the control channel, and by the file `STOP` in the job directory: from a server without a channel, because
    it was started again alone, and from people.
    """

    def __init__(self, job_dir: str, channel: ControlChannel) -> None:
        self._path, self._channel = os.path.join(job_dir, "STOP"), channel
        self._file_seen = False

    def send(self, sender: str, is_pending: Callable[[], bool]) -> None:
        """Asks, as a server, and waits until the chief has done so or the request `is_pending` no more."""
        self._channel.send(STOP)
        by_file = False
        while is_pending() and not self._channel.received(LEFT, DONE, within_s=min(self._poll_s, _TICK_S)):
            if by_file and read_bytes(self._path) is None:
                return
            if self._channel.broken and not by_file:
                by_file = True
                with contextlib.suppress(OSError, UserError):  # a full disk: it leaves without being heard
                    write_text(self._path, sender)

    def watch(self) -> None:
        """Begins to look for the file, as the chief; one from an earlier attempt asks nothing of this one."""
        self.clear()
        threading.Thread(target=self._watch, name="stop requests", daemon=True).start()

    def _watch(self) -> None:
        looked_at = time.monotonic()
        while not self._file_seen:
            time.sleep(min(self._poll_s, _TICK_S))
            if time.monotonic() - looked_at >= self._poll_s:  # which is less from when the channel breaks
                looked_at = time.monotonic()
                with contextlib.suppress(OSError, UserError):  # a store that fails for now
                    self._file_seen = read_bytes(self._path) is not None

    @property
    def _poll_s(self) -> float:
        """Seconds between two looks for the file: a store takes its time, and money, for each."""
        if not is_remote(self._path):
            return _POLL_S
        return _POLL_IN_STORE_S if self._channel.broken else _POLL_RARELY_S

    @property
    def pending(self) -> bool:
        """True once someone has asked."""
        return self._file_seen or self._channel.received(STOP)

    def clear(self) -> None:
        """Removes the file: what was asked for is done, or is no matter of this attempt."""
        delete_files([self._path])
