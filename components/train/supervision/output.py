"""Merged output of a job: what its replicas write to their log files, and what happens to the job, line by line.

    with Output() as output:
        output.follow("worker/1", "jobs/a/replicas/worker-1.log", start=0)
        output.lines("launcher", ["starting 2 replicas"])

A thread reads the log files and writes to standard output. A reader who stands still (`less`, a
terminal after Ctrl-S) makes that thread wait, never the job, and misses nothing: what is not shown
yet is in the files.
"""

import contextlib
import os
import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Self

_POLL_S = 0.1
_STALLED_S = 2.0
_MOST_LINE_BYTES = 16_384  # A longer line is shown in parts.


class _Log:
    """Lines that are appended to a file after some place in it."""

    def __init__(self, path: str, start: int) -> None:
        self._file = open(path, "rb")  # noqa: SIM115
        self._file.seek(start)
        self._line = b""

    def read(self) -> Iterator[str]:
        """Yields the complete lines up to where the file ends now."""
        while part := self._file.readline(_MOST_LINE_BYTES):
            self._line += part
            if self._line.endswith(b"\n") or len(self._line) >= _MOST_LINE_BYTES:
                yield from self.rest()

    def rest(self) -> Iterator[str]:
        """Yields a last line that has no end, if there is one then."""
        line, self._line = self._line, b""
        if line:  # A progress bar ends its lines with a carriage return alone.
            yield from line.decode("utf-8", "replace").rstrip("\r\n").split("\r")


class Output:
    """Standard output, shared by a job's replicas and its launcher."""

    def __init__(self, descriptor: int = 1) -> None:
        """Starts to write to `descriptor`."""
        os.set_blocking(descriptor, True)  # Somebody who shares it may have changed that.
        self._file = open(descriptor, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        self._tasks: queue.SimpleQueue[tuple[str, Iterable[str]]] = queue.SimpleQueue()
        self._logs: dict[str, _Log] = {}
        self._num_written = 0  # Lines.
        self._is_closed = False
        # A launcher forks. That is safe beside this thread: while another runs Python, it waits or
        # is in a system call.
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Waits until everything is shown, or the reader stands still."""
        self._is_closed = True
        num_written = -1
        while self._thread.is_alive() and num_written != self._num_written:
            num_written = self._num_written
            self._thread.join(_STALLED_S)

    def follow(self, name: str, path: str, start: int) -> None:
        """Shows from now on what is appended to a replica's log after `start`, in bytes."""
        if name not in self._logs:
            self._logs[name] = _Log(path, start)

    def end_line(self, name: str) -> None:
        """Shows a last line of a replica's log that has no end."""
        self.lines(name, self._logs[name].rest())

    def lines(self, name: str, lines: Iterable[str]) -> None:
        """Shows lines of somebody who has no log file, after all that is in the log files now."""
        self._tasks.put((name, lines))

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # Nobody may read any more.
            while not self._is_closed or not self._tasks.empty():
                tasks = []
                with contextlib.suppress(queue.Empty):
                    tasks.append(self._tasks.get(timeout=_POLL_S))
                logs = [(name, log.read()) for name, log in list(self._logs.items())]
                for name, lines in [*logs, *tasks]:
                    for line in lines:
                        self._file.write(f"{name} | {line}\n")
                        self._num_written += 1
                self._file.flush()
