"""SIGTERM as a flag that the step loop looks at, and the exit codes by which a launcher decides whether to start again.

TensorFlow's multi-worker runtime installs its own SIGTERM handler, and a parameter server sits in
C++ where Python's handlers never run. So the signal is blocked in every thread before TensorFlow
starts any, and one thread waits for it.

    stop = Stop.install()     # before TensorFlow is imported
    import tensorflow
    ... if stop.requested: save and leave with saved_code()

The launchers here restart whatever ends with another code than 0, and count 143 apart. Vertex AI
restarts of itself only what looks like a crash of the machine's: its documentation ("Understand the
custom training service") has 6, 11, 134 and 139 tried again, three times, and every other code but
0 ends the job for good as the user's own error. So there a replica that has saved, or has lost
others, ends as one that was aborted.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

ON_VERTEX = "CLOUD_ML_JOB_ID"  # set by its custom jobs
_SAVED = 143  # 128 + SIGTERM
_ABORTED = 134  # 128 + SIGABRT


def saved_code() -> int:
    """Returns the code of a replica that was told to stop: all is saved, and the same command goes on."""
    return _ABORTED if ON_VERTEX in os.environ else _SAVED


def failed_code() -> int:
    """Returns the code after another replica, a machine or a store has failed, so that the same command may go on."""
    return _ABORTED if ON_VERTEX in os.environ else 1


class Stop:
    """A request to this process to stop, which may come at any time."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._leave: Callable[[], None] | None = None
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

    @contextlib.contextmanager
    def at_once(self, before: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Inside, the signal ends the process after a call of `before`, whatever it is doing: there is nothing to save.

        The call is made by another thread, as the main one may be stuck in C++.
        """

        def leave() -> None:
            try:
                before()
            finally:
                self.end(saved_code())

        self._leave = leave
        if self.requested:
            leave()
        try:
            yield
        finally:
            self._leave = None

    def end(self, code: int) -> NoReturn:
        """Ends the process, whatever its other threads are doing, and whatever becomes of `last`."""
        try:
            self.last()
        finally:
            os._exit(code)

    def _wait(self) -> None:
        signal.sigwait({signal.SIGTERM})
        self._event.set()
        if self._leave:
            self._leave()
