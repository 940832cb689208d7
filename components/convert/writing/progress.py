"""How far long work has come: a bar on a terminal, a line now and then anywhere else, nothing if it is short.

with track("writing", 60_000, "examples") as advance:
    advance(1000)
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator

_FIRST_S, _BAR_EVERY_S, _LINE_EVERY_S = 1.0, 0.1, 10.0


@contextlib.contextmanager
def track(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told, of the total, how much more is done."""
    terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    shown = (_Bar if terminal else _Lines)(what, total, unit)
    done, due = 0, time.monotonic() + shown.first_s

    def advance(more: int) -> None:
        nonlocal done, due
        done += more
        if done and (now := time.monotonic()) >= due:
            shown.show(done)
            due = now + shown.every_s

    try:
        yield advance
    finally:
        shown.close()


class _Lines:
    first_s = every_s = _LINE_EVERY_S

    def __init__(self, what: str, total: int, unit: str):
        self._what, self._total, self._unit, self._start = what, total, unit, time.monotonic()

    def show(self, done: int) -> None:
        seconds = time.monotonic() - self._start
        print(
            f"{self._what}: {done / self._total:.0%} of {self._total:,} {self._unit} in {seconds:.0f} s, "
            f"about {seconds * (self._total - done) / done:.0f} s to go",
            flush=True,
        )

    def close(self) -> None:
        pass


class _Bar:
    first_s, every_s = _FIRST_S, _BAR_EVERY_S

    def __init__(self, what: str, total: int, unit: str):
        self._what, self._total, self._unit, self._bar = what, total, unit, None

    def show(self, done: int) -> None:
        if self._bar is None:
            from rich import progress  # for the one that sees it

            columns = (
                *progress.Progress.get_default_columns(),
                progress.TextColumn(f"of {self._total:,} {self._unit}"),
            )
            # It draws only when told to: a thread of its own would not survive a fork.
            self._bar = progress.Progress(*columns, auto_refresh=False, transient=True)
            self._task = self._bar.add_task(self._what, total=self._total)
            self._bar.start()
        self._bar.update(self._task, completed=done, refresh=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
