"""What a job shows of itself: lines for people, lines for machines, or a table drawn in place.

Synopsis:

    with view_for("plain") as view:
        view.lines("worker/1", ["step 10"])
        view.event(record.add("stop", signal="SIGTERM", again=False))
        view.rows(rows)  # now and then
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from components.train.supervision.launcher_log import Event, in_words

if TYPE_CHECKING:
    from rich.table import Table

FORMATS = ("plain", "json", "live")
_ME = "launcher"
_STDOUT = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A replica at one moment.

    Attributes:
      replica: Its name, `worker/1`.
      state: What it does: a phase of the trainer, `starting`, `stopping`, `ended`, ...
      restarts: How often it was started again.
      step: Global step, if it tells.
      examples_per_s: Of the whole job, if it tells.
      memory: Resident bytes.
    """

    replica: str
    state: str
    restarts: int
    step: int | None = None
    examples_per_s: float | None = None
    memory: int | None = None


class Plain:
    """Each line of each replica after its name, `worker/1 | `; the launcher's own among them."""

    def __init__(self, output: int):
        self._output: int | None = output

    def lines(self, name: str, lines: Sequence[str]) -> None:
        """What a replica has written."""
        self._write("".join(f"{name} | {line}\n" for line in lines))

    def event(self, event: Event) -> None:
        """What happened to the job."""
        self.lines(_ME, in_words(event))

    def rows(self, rows: Sequence[Row]) -> None:
        """How the replicas are now."""

    def _write(self, text: str) -> None:
        data = memoryview(text.encode("utf-8", "replace"))
        try:
            while data and self._output is not None:
                data = data[os.write(self._output, data) :]
        except OSError:
            self._output = None  # Nobody listens any more; the job and its log files go on.


class Json(Plain):
    """One JSON object a line: the events of `record`, and `{"event": "log", "replica": ..., "line": ...}`."""

    def lines(self, name: str, lines: Sequence[str]) -> None:
        """What a replica has written."""
        self._write("".join(json.dumps({"event": "log", "replica": name, "line": line}) + "\n" for line in lines))

    def event(self, event: Event) -> None:
        """What happened to the job."""
        self._write(json.dumps(event) + "\n")


class Live:
    """On a terminal: the lines scroll by above a table with a row for each replica."""

    def __init__(self) -> None:
        from rich import console, live

        self._console = console.Console()
        # It draws when it is told to, not in a thread: replicas want a launcher of one thread to be forked from.
        self._live = live.Live(console=self._console, auto_refresh=False)

    def start(self) -> None:
        """Begins to draw."""
        self._live.start()

    def stop(self) -> None:
        """Leaves the last table on the screen."""
        self._live.stop()

    def lines(self, name: str, lines: Sequence[str]) -> None:
        """What a replica has written."""
        from rich.text import Text

        shown = [Text(f"{name} | ", style="cyan").append(Text.from_ansi(line)) for line in lines]
        if shown:
            self._console.print(Text("\n").join(shown), soft_wrap=True)  # At once: each print draws the table again.

    def event(self, event: Event) -> None:
        """What happened to the job."""
        self.lines(_ME, in_words(event))

    def rows(self, rows: Sequence[Row]) -> None:
        """How the replicas are now."""
        self._live.update(table(rows), refresh=True)


def table(rows: Sequence[Row]) -> Table:
    """The replicas as a table of rich."""
    from rich.table import Table

    drawn = Table("replica", "state", box=None, pad_edge=False, header_style="dim")
    for title in ("step", "examples/s", "restarts", "memory"):
        drawn.add_column(title, justify="right")
    for row in rows:
        drawn.add_row(
            row.replica,
            row.state,
            "" if row.step is None else f"{row.step:,}",
            "" if row.examples_per_s is None else f"{row.examples_per_s:,.0f}",
            str(row.restarts or ""),
            "" if row.memory is None else f"{row.memory / 2**20:,.0f} MiB",
        )
    return drawn


@contextlib.contextmanager
def view_for(form: str | None) -> Iterator[Plain | Live]:
    """The view of one of `FORMATS`; by default live on a terminal and plain elsewhere."""
    form = form or ("live" if sys.stdout.isatty() else "plain")
    if form != "live":
        yield (Json if form == "json" else Plain)(_STDOUT)
        return
    view = Live()
    view.start()
    try:
        yield view
    finally:
        view.stop()
