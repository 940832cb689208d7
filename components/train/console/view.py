"""What a job shows of itself: lines for people, lines for machines, or a table drawn in place.

with view_for("plain") as view:
    view.lines("worker/1", ["step 10"])
    view.event(record.add("stop", signal="SIGTERM", again=False))
    view.rows(rows)  # now and then
"""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from components.train.console.outlet import Outlet
from components.train.supervision.audience import Audience, Row
from components.train.supervision.launcher_log import Event, in_words

FORMATS = ("plain", "json", "live")
_ME = "launcher"
_STDOUT = 1


class Plain(Audience):
    """Each line of each replica after its name, `worker/1 | `; the launcher's own among them."""

    def __init__(self, output: int):
        self._outlet = Outlet(output, self._missing)

    def close(self) -> None:
        """Waits for whoever reads, for some seconds."""
        self._outlet.close()

    def lines(self, name: str, lines: Sequence[str]) -> None:
        """What a replica has written."""
        self._outlet.write("".join(f"{self._line(name, line)}\n" for line in lines))

    def event(self, event: Event) -> None:
        """What happened to the job."""
        self.lines(_ME, in_words(event))

    def _line(self, name: str, line: str) -> str:
        return f"{name} | {line}"

    def _missing(self, lines: int) -> str:
        return f"{_ME} | {lines:,} lines are not shown, which nobody read in time; the log files have them\n"


class Json(Plain):
    """One JSON object a line: the events of `record`, and two of its own.

    `{"event": "log", "replica": ..., "line": ...}`, and `{"event": "missing", "lines": ...}` for lines that are left out.
    """

    def event(self, event: Event) -> None:
        """What happened to the job."""
        self._outlet.write(json.dumps(event) + "\n")

    def _line(self, name: str, line: str) -> str:
        return json.dumps({"event": "log", "replica": name, "line": line})

    def _missing(self, lines: int) -> str:
        return json.dumps({"event": "missing", "lines": lines}) + "\n"


class Live(Plain):
    """On a terminal: the lines scroll by above a table with a row for each replica."""

    def __init__(self, output: int):
        from rich import console, live

        super().__init__(output)
        self._console = console.Console(file=self._outlet)
        self._live = live.Live(console=self._console, auto_refresh=False)  # It draws when it is told to.
        self._live.start()

    def close(self) -> None:
        """Leaves the last table on the screen."""
        self._live.stop()
        super().close()

    def lines(self, name: str, lines: Sequence[str]) -> None:
        """What a replica has written."""
        from rich.text import Text

        shown = [Text(f"{name} | ", style="cyan").append(Text.from_ansi(line)) for line in lines]
        if shown:
            self._console.print(Text("\n").join(shown), soft_wrap=True)  # At once: each print draws the table again.

    def rows(self, rows: Sequence[Row]) -> None:
        """How the replicas are now."""
        self._live.update(table(rows), refresh=True)


def table(rows: Sequence[Row]) -> Any:
    """The replicas as a `rich.table.Table`."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table("replica", "state", box=None, pad_edge=False, header_style="dim")
    for title in ("step", "examples/s", "restarts", "memory"):
        drawn.add_column(title, justify="right")
    for row in rows:
        drawn.add_row(
            row.replica,
            Text(row.state),  # As a program of the user's own words it: no markup.
            "" if row.step is None else f"{row.step:,}",
            "" if row.examples_per_s is None else f"{row.examples_per_s:,.0f}",
            str(row.restarts or ""),
            "" if row.memory is None else f"{row.memory / 2**20:,.0f} MiB",
        )
    return drawn


@contextlib.contextmanager
def view_for(form: str | None) -> Iterator[Plain]:
    """The view of one of `FORMATS`; by default live on a terminal and plain elsewhere."""
    form = form or ("live" if sys.stdout.isatty() else "plain")
    with contextlib.closing({"plain": Plain, "json": Json, "live": Live}[form](_STDOUT)) as view:
        yield view
