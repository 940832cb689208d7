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

from etils import epath

from trainer.base.files import is_remote, read_text, store_errors, write_text
from trainer.replicas import exit_codes

_LEFT = "the chief has left"
_LOOK_S, _LOOK_IN_STORE_S = 0.05, 8.0


class Stop:
    """Whether this process was told to stop.

    Attributes:
      last: What `end` does before the process ends.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._then: Callable[[], None] | None = None
        self.last: Callable[[], None] = lambda: None

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


class StopMark:
    """The file `STOP` in a job directory, by which a replica that was told to stop asks the chief to save.

    With it the chief also tells those that wait for the end of the job that it leaves before.

    Attributes:
      look_s: How often one that waits for the mark should look: a store takes its time, and money, for each request.
    """

    def __init__(self, job_dir: str) -> None:
        self._path = epath.Path(job_dir) / "STOP"
        self.look_s = _LOOK_IN_STORE_S if is_remote(job_dir) else _LOOK_S
        self._asked: threading.Event | None = None
        self._before = self._says()  # by an earlier attempt; it may be cleared only later, as seen from here

    def set(self, who: str) -> None:
        """Asks."""
        with contextlib.suppress(OSError):  # a full disk: it leaves without being heard
            write_text(self._path, who)

    def leave(self) -> None:
        """Tells, as the chief."""
        self.set(f"{_LEFT} {time.time_ns()}")

    def watch(self) -> None:
        """Lets `is_set` answer at once also of a store, from what a thread has seen at its last look: for the step loop."""
        if not is_remote(self._path):
            return
        self._asked = threading.Event()
        threading.Thread(target=self._look, name="stop-mark", daemon=True).start()

    def _look(self) -> None:
        while not self._asked.wait(self.look_s):
            with contextlib.suppress(OSError):  # a store that fails for now
                if self._says():
                    self._asked.set()

    def is_set(self) -> bool:
        """Whether somebody asks."""
        return bool(self._says()) if self._asked is None else self._asked.is_set()

    @property
    def left(self) -> bool:
        """Whether the chief has told."""
        return (says := self._says()).startswith(_LEFT) and says != self._before

    def _says(self) -> str:
        return read_text(self._path) or ""

    def clear(self) -> None:
        """Answers: what was asked for is done, or nobody asks any more."""
        with store_errors():
            self._path.unlink(missing_ok=True)
