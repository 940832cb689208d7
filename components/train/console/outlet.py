"""Text for a reader who may be slow, asleep or gone, none of which makes the writer wait.

    outlet = Outlet(1, lambda lines: f"{lines} lines are missing here\\n")
    outlet.write("step 10\\n")
    outlet.close()  # waits for the reader as long as it reads

`less` that shows its first page, a terminal after Ctrl-S, or a collector that hangs lets a write wait for ever. To make the
descriptor non-blocking would do the same to the shell, with which it is shared; hence a thread that waits instead.
"""

import os
import select
import threading
from collections import deque
from collections.abc import Callable

_WAITING_BYTES = 2**20
_CHUNK_BYTES = 4096  # A write to a pipe returns when all of it is there, so the size of a sign of life.
_SLOW_S = 0.5
_STALLED_S = 2.0
_CLOSE_S = 10.0


class Outlet:
    """A file of text, as far as `rich` needs one, with at most 1 MiB that waits.

    What finds no room within half a second is left out, up to where all that waited is read; there, a line says how
    much it was.
    """

    encoding = "utf-8"

    def __init__(self, descriptor: int, missing: Callable[[int], str]):
        """Writes to `descriptor`; `missing` is the text in place of this many lines."""
        self._descriptor, self._missing = descriptor, missing
        self._waiting: deque[bytes] = deque()
        self._bytes = self._left_out = self._written = 0
        self._gone = self._closed = False
        self._changed = threading.Condition()
        # A launcher forks. That is safe beside this thread: while another runs Python, it waits or is in a system call.
        threading.Thread(target=self._run, name="outlet", daemon=True).start()

    def write(self, text: str) -> None:
        """Has it written when the reader is ready, or leaves it out."""
        data = text.encode("utf-8", "replace")
        limit = max(_WAITING_BYTES, len(data))
        with self._changed:
            # A reader who is only slower than a flood gets all of it; one who stands still is waited for once.
            if self._left_out or not self._changed.wait_for(lambda: self._bytes + len(data) <= limit, _SLOW_S):
                self._left_out += text.count("\n")
            elif data and not self._gone:
                self._waiting.append(data)
                self._bytes += len(data)
                self._changed.notify_all()

    def flush(self) -> None:
        """Nothing: it goes out by itself."""

    def isatty(self) -> bool:
        """Whether it goes to a terminal."""
        return os.isatty(self._descriptor)

    def close(self) -> None:
        """Waits until all is written, but for a reader that stands still only 2 s, and for none longer than 10 s."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for _ in range(int(_CLOSE_S / _STALLED_S)):
                before = self._written
                if self._changed.wait_for(lambda: not self._waiting, _STALLED_S) or self._written == before:
                    return

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                data = self._waiting[0]
            self._put(data)
            with self._changed:
                self._bytes -= len(self._waiting.popleft())
                self._changed.notify_all()
                if self._left_out and not self._waiting:
                    self._waiting.append(self._missing(self._left_out).encode())
                    self._bytes += len(self._waiting[0])
                    self._left_out = 0

    def _put(self, data: bytes) -> None:
        left = memoryview(data)
        while left and not self._gone:
            try:
                written = os.write(self._descriptor, left[:_CHUNK_BYTES])
                left = left[written:]
                self._written += written
            except BlockingIOError:  # Somebody who shares the descriptor has made it non-blocking.
                select.select([], [self._descriptor], [])
            except OSError:
                self._gone = True  # Nobody listens any more; the job and its log files go on.
