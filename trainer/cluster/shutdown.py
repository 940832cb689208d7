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

from common.storage.files import is_remote, read_bytes, store_errors, write_text
from trainer.cluster import exit_codes
from trainer.cluster.control_channel import DONE, LEFT, STOP, Line

_LEFT = "the chief has left"
# In a store: where everybody is told over the line, and where somebody may not be.
_LOOK_S, _LOOK_RARELY_S, _LOOK_IN_STORE_S = 0.05, 30.0, 8.0
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


class StopMark:
    """The file `STOP` in a job directory, by which a replica that was told to stop asks the chief to save.

    With it the chief also tells those that wait for the end of the job that it leaves before. Both are said on the line
    too, and heard there first; the file is for those without, and for people.
    """

    def __init__(self, job_dir: str, line: Line) -> None:
        self._path, self._line = epath.Path(job_dir) / "STOP", line
        self._asked: bool | None = None
        self._writing: threading.Thread | None = None
        self._before = self._says()  # by an earlier attempt; it may be cleared only later, as seen from here

    @property
    def look_s(self) -> float:
        """How often one that waits for the file should look: a store takes its time, and money, for each request."""
        if not is_remote(self._path):
            return _LOOK_S
        return _LOOK_IN_STORE_S if self._line.broken else _LOOK_RARELY_S

    def set(self, who: str) -> None:
        """Asks. Waits until the file is written only where the line tells nobody."""

        def write() -> None:
            with contextlib.suppress(OSError):  # a full disk: it leaves without being heard
                if not self.left:  # or others would not see that
                    write_text(self._path, who)

        told = self._line.tell(STOP)
        self._writing = threading.Thread(target=write, name="stop-mark", daemon=True)
        self._writing.start()
        if not told:
            self._writing.join()

    def answered(self) -> bool:
        """Whether the chief has done what was asked for; waits a little for it."""
        if self._line.hears(LEFT, DONE, within_s=min(self.look_s, _TICK_S)):
            return True
        if not self._line.broken:
            return False
        self._writing.join()
        return not self._says()

    def leave(self) -> None:
        """Tells, as the chief."""
        with contextlib.suppress(OSError):
            write_text(self._path, f"{_LEFT} {time.time_ns()}")

    def watch(self) -> None:
        """Lets `is_set` answer at once also of a store, from what a thread has seen at its last look: for the step loop."""
        if is_remote(self._path):
            self._asked = False
            threading.Thread(target=self._look, name="stop-mark", daemon=True).start()

    def _look(self) -> None:
        looked_at = time.monotonic()
        while not self._asked and not self._line.hears(STOP, within_s=min(self.look_s, _TICK_S)):
            if time.monotonic() - looked_at >= self.look_s:  # which is less from when the line breaks
                looked_at = time.monotonic()
                with contextlib.suppress(OSError):  # a store that fails for now
                    self._asked = bool(self._says())

    def is_set(self) -> bool:
        """Whether somebody asks."""
        return self._line.hears(STOP) or (bool(self._says()) if self._asked is None else self._asked)

    @property
    def left(self) -> bool:
        """Whether the chief has told."""
        return self._line.hears(LEFT) or ((says := self._says()).startswith(_LEFT) and says != self._before)

    def _says(self) -> str:
        return (read_bytes(self._path) or b"").decode()

    def clear(self) -> None:
        """Answers: what was asked for is done, or nobody asks any more."""
        with store_errors():
            self._path.unlink(missing_ok=True)
