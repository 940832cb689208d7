"""Merged output of a job: what its replicas write to their log files, and what happens to the job, line by line.

    with Output() as output:
        output.follow("worker/1", log, start=0)
        output.event(record.add("stop", why="SIGTERM", again=False))

A thread reads the log files and writes to standard output. A reader who stands still (`less`, a terminal after Ctrl-S)
makes that thread wait, never the job, and misses nothing: what is not shown yet is in the files.
"""

import contextlib
import functools
import io
import os
import queue
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from components.train.supervision.health import Row
from components.train.supervision.launcher_log import Event, in_words

_POLL_S = 0.1
_STALLED_S = 2.0
_TAIL_BYTES = 65_536
_CHUNK_BYTES = 16_384  # Of a log at a time; a longer line is shown in parts.
# A progress bar ends its lines with a carriage return alone; one at the end of what is there may be half of CR LF.
_LINE_END = re.compile(rb"\r?\n|\r(?=[^\n])")


def table(rows: Sequence[Row]) -> Any:
    """Returns the progress of the replicas as a `rich.table.Table`."""
    from rich.table import Table
    from rich.text import Text

    progress = Table("replica", "phase", box=None, pad_edge=False, header_style="dim")
    for title in ("step", "examples/s"):
        progress.add_column(title, justify="right")
    for row in rows:
        step = "" if row.step is None else f"{row.step:,}"
        speed = "" if row.examples_per_s is None else f"{row.examples_per_s:,.0f}"
        progress.add_row(row.replica, Text(row.phase), step, speed)  # A user's program may name its phase in markup.
    return progress


class LogReader:
    """Lines that are appended to a file after some place in it."""

    def __init__(self, file: io.FileIO, start: int) -> None:
        """Reads an open file, without regard to its own position; `start` is in bytes."""
        self._file, self._position = file, start
        self._rest = b""

    def read(self) -> Iterator[list[str]]:
        """Yields the complete lines up to where the file ends now, some at a time."""
        end = os.fstat(self._file.fileno()).st_size
        while self._position < end and (chunk := os.pread(self._file.fileno(), _CHUNK_BYTES, self._position)):
            self._position += len(chunk)
            *lines, self._rest = _LINE_END.split(self._rest + chunk)
            if len(self._rest) > _CHUNK_BYTES:
                lines.append(self._rest)
                self._rest = b""
            yield [line.decode("utf-8", "replace") for line in lines]

    def read_rest(self) -> list[str]:
        """Returns a last line that has no end, if there is one."""
        rest, self._rest = self._rest.rstrip(b"\r"), b""
        return [rest.decode("utf-8", "replace")] if rest else []


def last_lines(file: io.FileIO, start: int, count: int) -> list[str]:
    """Returns the last lines of what was written to a file from `start` on."""
    size = os.fstat(file.fileno()).st_size
    data = os.pread(file.fileno(), _TAIL_BYTES, max(start, size - _TAIL_BYTES)).rstrip()
    lines = _LINE_END.split(data) if data else []
    return [line.decode("utf-8", "replace") for line in lines[-count:]]


class Output:
    """Standard output, shared by a job's replicas and its launcher; on a terminal with a table of their progress."""

    def __init__(self, descriptor: int = 1) -> None:
        """Starts to write to `descriptor`."""
        os.set_blocking(descriptor, True)  # Somebody who shares it may have changed that.
        self._file = open(descriptor, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._logs: dict[str, LogReader] = {}
        self._rows: Sequence[Row] = ()
        self._written = 0  # Writes.
        self._live: Any = None
        if self._file.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self._file), auto_refresh=False)
        # A launcher forks. That is safe beside this thread: while another runs Python, it waits or is in a system call.
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Waits until everything is shown, or the reader stands still."""
        self._tasks.put(None)
        written = -1
        while self._thread.is_alive() and written != self._written:
            written = self._written
            self._thread.join(_STALLED_S)

    def follow(self, name: str, log: io.FileIO, start: int) -> None:
        """Shows from now on what is appended to a replica's log after `start`."""
        self._logs.setdefault(name, LogReader(log, start))

    def lines(self, name: str, lines: Sequence[str]) -> None:
        """Shows lines of somebody who has no log file."""
        self._tasks.put(functools.partial(self._print, name, lines))

    def event(self, event: Event) -> None:
        """Shows what happened to the job, after all that the replicas wrote before."""
        if event["event"] == "down":
            self._tasks.put(functools.partial(self._print_rest, event["replica"]))
        self.lines("launcher", in_words(event))

    def progress(self, rows: Sequence[Row]) -> None:
        """Shows on a terminal how the replicas are now."""
        self._rows = rows

    def _run(self) -> None:
        with contextlib.suppress(OSError), self._live or contextlib.nullcontext():  # Nobody may read any more.
            while True:
                try:
                    task = self._tasks.get(timeout=_POLL_S)
                except queue.Empty:
                    task = self._draw
                for name, log in list(self._logs.items()):
                    for lines in log.read():
                        self._print(name, lines)
                if task is None:
                    break
                task()
            for name in self._logs:
                self._print_rest(name)
            self._draw()

    def _print(self, name: str, lines: Sequence[str]) -> None:
        if self._live and lines:
            from rich.text import Text

            texts = [Text(f"{name} | ", style="cyan").append(Text.from_ansi(line)) for line in lines]
            self._live.console.print(Text("\n").join(texts), soft_wrap=True)  # Each print draws the table again.
        elif lines:
            self._file.write("".join(f"{name} | {line}\n" for line in lines))
            self._file.flush()
        self._written += 1

    def _print_rest(self, name: str) -> None:
        self._print(name, self._logs[name].read_rest())

    def _draw(self) -> None:
        if self._live:
            self._live.update(table(self._rows) if self._rows else "", refresh=True)
