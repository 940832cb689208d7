"""SIGTERM as a flag for the step loop, and the exit codes by which launchers decide on a restart.

TensorFlow's multi-worker runtime installs its own SIGTERM handler, and a parameter server runs in
C++ where Python's handlers are never called. So the signal is blocked in every thread before
TensorFlow starts any, and one thread waits for it.

    stop = Stop.install()     # before TensorFlow is imported
    import tensorflow
    ... if stop.requested: save and leave with saved_code()

The launchers here restart a replica that ends with another code than 0, and count 143 separately.
Vertex AI restarts only what looks like a crash: by its documentation ("Understand the custom
training service") it tries again, three times, after the codes 6, 11, 134 and 139, and every other
code but 0 ends the job as the user's own error. So on Vertex AI a replica that has saved, or has
lost others, ends as if it was aborted.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

ON_VERTEX = "CLOUD_ML_JOB_ID"  # Set in custom jobs of Vertex AI.
_SAVED = 143  # 128 + SIGTERM
_ABORTED = 134  # 128 + SIGABRT


def saved_code() -> int:
    """Returns the exit code after a stop request: 143, or 134 on Vertex AI.

    All is saved, and the same command resumes the job.
    """
    return _ABORTED if ON_VERTEX in os.environ else _SAVED


def failed_code() -> int:
    """Returns the exit code after a failure of another replica, a machine or a store.

    It is 1, or 134 on Vertex AI. The same command may resume the job.
    """
    return _ABORTED if ON_VERTEX in os.environ else 1


class Stop:
    """Request to this process to stop, which SIGTERM may make at any time.

    Attributes:
      last: Function that `end` calls before the process ends.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._leave: Callable[[], None] | None = None
        self.last: Callable[[], None] = lambda: None

    @classmethod
    def install(cls) -> Stop:
        """Blocks SIGTERM and waits for it in a daemon thread.

        It is blocked in the calling thread and in all threads that are started later.
        """
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
        """Context manager in which SIGTERM ends the process at once, as there is nothing to save.

        The exit code is `saved_code()`. A signal that came earlier ends it on entering. Another
        thread makes the call and ends the process, as the main thread may be stuck in C++. These
        contexts cannot be nested.

        Args:
          before: Function to call before the process ends.
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
        """Calls `last` and ends the process, even if `last` raises or other threads are busy."""
        try:
            self.last()
        finally:
            os._exit(code)

    def _wait(self) -> None:
        signal.sigwait({signal.SIGTERM})
        self._event.set()
        if self._leave:
            self._leave()
