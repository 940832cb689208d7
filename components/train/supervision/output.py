"""Merged output of a job: the log files of its replicas and the messages of its launcher.

    with Output() as output:
        output.follow("worker/1", "jobs/a/replicas/worker-1.log", start=0)
        output.lines("launcher", ["starting 2 replicas"])

A thread reads the log files and writes their lines to standard output, each with the replica's
name. If the reader of standard output pauses (`less`, or a terminal after Ctrl-S), only that thread
waits, not the job, and no line is lost: lines that are not shown yet are in the files.
"""

import contextlib
import os
import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Self

_POLL_S = 0.1
_STALLED_S = 2.0  # A reader that takes no line for so long is not waited for at the end.
_MOST_LINE_BYTES = 16_384  # A longer line is shown in parts.


class _Log:
    """Reader of the lines that are appended to a file after byte `start`."""

    def __init__(self, path: str, start: int) -> None:
        self._file = open(path, "rb")  # noqa: SIM115
        self._file.seek(start)
        self._line = b""

    def read(self) -> Iterator[str]:
        """Yields the complete new lines up to the present end of the file, without line ends.

        A carriage return separates lines too. A line of 16 KiB or more is yielded in parts, perhaps
        before it is complete.
        """
        while part := self._file.readline(_MOST_LINE_BYTES):
            self._line += part
            if self._line.endswith(b"\n") or len(self._line) >= _MOST_LINE_BYTES:
                yield from self.rest()

    def rest(self) -> Iterator[str]:
        """Yields what has been read but not yielded yet; nothing if there is no such text.

        A carriage return separates lines too.
        """
        line, self._line = self._line, b""
        if line:
            # The lines of a progress bar end with a carriage return alone.
            yield from line.decode("utf-8", "replace").rstrip("\r\n").split("\r")


class Output:
    """Standard output, shared by a job's replicas and its launcher.

    The end of the `with` block waits until everything is shown, or the reader has paused for some
    seconds.
    """

    def __init__(self, descriptor: int = 1) -> None:
        """Starts the thread that writes to a file descriptor, which is made blocking."""
        # Another process that shares the descriptor may have made it non-blocking.
        os.set_blocking(descriptor, True)
        self._file = open(descriptor, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        self._tasks: queue.SimpleQueue[tuple[str, Iterable[str]]] = queue.SimpleQueue()
        self._logs: dict[str, _Log] = {}
        self._num_written = 0  # Number of lines.
        self._is_closed = False
        # The launcher forks while this thread exists. That is safe: as long as another thread runs
        # Python code, this one waits for the interpreter's lock or is in a system call.
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Waits until everything is shown, or the reader has taken no line for 2 s or has gone."""
        self._is_closed = True
        num_written = -1
        while self._thread.is_alive() and num_written != self._num_written:
            num_written = self._num_written
            self._thread.join(_STALLED_S)

    def follow(self, name: str, path: str, start: int) -> None:
        """Shows the lines of a replica's log file from now on.

        A second call with the same name changes nothing.

        Args:
          name: Name of the replica.
          path: Log file.
          start: Offset in bytes of the first line to show.

        Raises:
          OSError: If the file cannot be opened.
        """
        if name not in self._logs:
            self._logs[name] = _Log(path, start)

    def end_line(self, name: str) -> None:
        """Shows the last line of a replica's log file even if it has no line end.

        The replica must be one that `follow` has named.
        """
        self.lines(name, self._logs[name].rest())

    def lines(self, name: str, lines: Iterable[str]) -> None:
        """Shows lines that are in no log file, after those that are in the log files now.

        Args:
          name: Name that precedes each line, such as `launcher`.
          lines: Lines without line ends. They are iterated over later, in the output's thread.
        """
        self._tasks.put((name, lines))

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # The reader may have gone.
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
